// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov & Hutter 2019) from the integer gradient, binary32, as written in docs/numerics.md.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"
#include "ops/adamw/adamw_factors.h"

namespace lockstep::ops {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1;
};
AdamWFactors adamw_factors(const AdamWSettings& settings, double lr, double clip, int64_t step);

// For i in [0, n): g = gradient_from_fixed(image)*clip; m, v, w as in docs/numerics.md, AdamW; w, m, v
// updated in place. apply_decay false (1-D tensors): weight_decay is taken as +0.
void adamw_ref(const AdamWFactors& factors, bool apply_decay, const int64_t* image, int64_t n, float* m,
               float* v, float* w);
void adamw_cpu(const cpu::Context& context, const AdamWFactors& factors, bool apply_decay,
               const int64_t* image, int64_t n, float* m, float* v, float* w);

}  // namespace lockstep::ops
