// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw/adamw_bf16.h"

namespace lockstep::ops {

void adamw_bf16_ref(const AdamWFactors& factors, bool apply_decay, const int64_t* image, int64_t n, float* m,
                    float* v, float* w, numerics::Bf16* weights) {
  adamw_ref(factors, apply_decay, image, n, m, v, w);
  for (int64_t i = 0; i < n; ++i) weights[i] = numerics::float_to_bfloat16(w[i]);
}

}  // namespace lockstep::ops
