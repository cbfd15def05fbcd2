// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/rope/rope.h"

namespace lockstep::ops {

void rope_ref(const RopeTable& table, const int32_t* positions, int64_t rows, int64_t heads, bool inverse,
              float* x, int64_t ldx) {
  const int64_t half = table.head_size / 2;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      float* pair = x + row * ldx + head * table.head_size;
      for (int64_t i = 0; i < half; ++i) {
        const float c = table.cos[positions[row] * half + i];
        const float s =
            inverse ? -table.sin[positions[row] * half + i] : table.sin[positions[row] * half + i];
        const float a = pair[i];
        const float b = pair[i + half];
        pair[i] = std::fma(a, c, -(b * s));
        pair[i + half] = std::fma(b, c, a * s);
      }
    }
  }
}

}  // namespace lockstep::ops
