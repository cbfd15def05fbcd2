// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) on pairs (i, i + d/2): a' = fma(a, cos, -(b*sin)), b' = fma(b,
// cos, a*sin).
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "device/cpu/context.h"

namespace lockstep::ops {

// cos and sin of position * 2^(-(2i/d) * log2(base)), binary64 (numerics/math.h), rounded once.
struct RopeTable {
  int64_t head_size = 0;
  int64_t positions = 0;
  Buffer<float> cos;  // [positions, head_size/2]
  Buffer<float> sin;  // [positions, head_size/2]
};
RopeTable make_rope_table(const cpu::Context& context, double base, int64_t head_size, int64_t positions);

// Rotates `heads` consecutive heads of each row in place: rows of x start at x + row*ldx; positions [rows]
// int32, each < table.positions. inverse: with -sin (the gradient).
void rope_ref(const RopeTable& table, const int32_t* positions, int64_t rows, int64_t heads, bool inverse,
              float* x, int64_t ldx);
void rope_cpu(const cpu::Context& context, const RopeTable& table, const int32_t* positions, int64_t rows,
              int64_t heads, bool inverse, float* x, int64_t ldx);

}  // namespace lockstep::ops
