// SPDX-License-Identifier: Apache-2.0
// AdamW in profile bf16: the masters are binary32 and updated as in adamw.h; the model's weights are bf16 of
// them.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"
#include "ops/adamw/adamw.h"

namespace lockstep::ops {

// As adamw_ref on m, v and the masters w; then weights[i] = bf16(w[i]).
void adamw_bf16_ref(const AdamWFactors& factors, bool apply_decay, const int64_t* image, int64_t n, float* m,
                    float* v, float* w, numerics::Bf16* weights);

}  // namespace lockstep::ops
