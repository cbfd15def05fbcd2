// SPDX-License-Identifier: Apache-2.0
// AdamW of profile bf16 on a CPU: the bits of adamw_bf16.h.
#pragma once

#include "ops/adamw/adamw_bf16.h"

namespace lockstep::ops {

void adamw_bf16_cpu(const cpu::Context& context, const AdamWFactors& factors, bool apply_decay,
                    const int64_t* image, int64_t n, float* m, float* v, float* w, numerics::Bf16* weights);
// weights[i] = bf16(masters[i]).
void round_weights_bf16_cpu(const cpu::Context& context, const float* masters, int64_t n,
                            numerics::Bf16* weights);

}  // namespace lockstep::ops
