// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding_bf16.h"

#include "numerics/fixed_point.h"

namespace lockstep::ops {

using numerics::Bf16;

void embedding_forward_bf16_ref(const Bf16* table, const int32_t* ids, int64_t rows, int64_t h, Bf16* out) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < h; ++i) out[row * h + i] = table[ids[row] * h + i];
  }
}

bool embedding_gradient_bf16_ref(const Bf16* dh, const int32_t* ids, int64_t rows, int64_t h, float bound,
                                 int64_t* image) {
  bool in_range = true;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < h; ++i) {
      const float x = numerics::bfloat16_to_float(dh[row * h + i]);
      if (numerics::in_gradient_range(x, bound)) {
        image[ids[row] * h + i] += numerics::gradient_to_fixed(x);
      } else {
        in_range = false;
      }
    }
  }
  return in_range;
}

}  // namespace lockstep::ops
