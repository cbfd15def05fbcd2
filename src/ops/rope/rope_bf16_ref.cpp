// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope_bf16.h"

#include <cmath>

namespace lockstep::ops {

void rope_bf16_ref(const RopeTable& table, const int32_t* positions, int64_t rows, int64_t heads,
                   bool inverse, const float* x, int64_t ldx, numerics::Bf16* out, int64_t ldo) {
  const int64_t half = table.head_size / 2;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const float* pair = x + row * ldx + head * table.head_size;
      numerics::Bf16* rotated = out + row * ldo + head * table.head_size;
      for (int64_t i = 0; i < half; ++i) {
        const float c = table.cos[positions[row] * half + i];
        const float sine = table.sin[positions[row] * half + i];
        const float s = inverse ? -sine : sine;
        const float a = pair[i];
        const float b = pair[i + half];
        rotated[i] = numerics::float_to_bfloat16(std::fma(a, c, -(b * s)));
        rotated[i + half] = numerics::float_to_bfloat16(std::fma(b, c, a * s));
      }
    }
  }
}

}  // namespace lockstep::ops
