// SPDX-License-Identifier: Apache-2.0
// What forward and backward of the CPU path of profile bf16 share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "device/cpu/context.h"
#include "numerics/constants.h"
#include "numerics/math.h"
#include "numerics/tc16_tile.h"

namespace lockstep::ops {

inline numerics::Tc16Tile attention_tile_bf16(const cpu::Context& context) {
  numerics::Tc16Tile tile = numerics::tc16_tile_portable();
  if (context.isa() == cpu::Isa::kAvx2) tile = numerics::tc16_tile_avx2();
  if (context.isa() == cpu::Isa::kAvx512) tile = numerics::tc16_tile_avx512();
  LOCKSTEP_CHECK(tile != nullptr, "attention of profile bf16 was not compiled for this instruction set");
  return tile;
}

// The weight of a score s with nearest integer n beside 2^max, written so that compilers make vectors of it.
// n - max is at most 0.
inline float attention_weight(float s, float n, float max) {
  const float e = n - max;
  const float kept = std::max(e, static_cast<float>(numerics::kWeightFloor));
  const float w = numerics::exp2_fraction(s - n) * numerics::pow2f(static_cast<int>(kept));
  return e < static_cast<float>(numerics::kWeightFloor) ? 0.0F : w;
}

// Column operands of a block of 64 keys: x [keys, d] with row stride ld.
// keys as columns, steps over d: tile t of 16 keys at [t * groups(d)].
inline void expand_keys_as_columns(const uint16_t* x, int64_t ld, int64_t keys, int64_t d,
                                   numerics::Tc16ColumnGroup* out) {
  for (int64_t key = 0; key < keys; key += numerics::kTc16Columns, out += numerics::tc16_groups(d)) {
    numerics::tc16_expand_columns(x + key * ld, 1, ld, d,
                                  std::min<int64_t>(numerics::kTc16Columns, keys - key), out);
  }
}
// d as columns, steps over rows: tile t of 16 elements at [t * groups_each]; rows past `rows` are zeros.
inline void expand_rows_as_steps(const uint16_t* x, int64_t ld, int64_t rows, int64_t d, int64_t groups_each,
                                 numerics::Tc16ColumnGroup* out) {
  for (int64_t i = 0; i < d; i += numerics::kTc16Columns, out += groups_each) {
    numerics::tc16_expand_columns(x + i, ld, 1, rows, std::min<int64_t>(numerics::kTc16Columns, d - i), out);
  }
}

}  // namespace lockstep::ops
