// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw/adamw_bf16_cpu.h"

namespace lockstep::ops {

void round_weights_bf16_cpu(const cpu::Context& context, const float* masters, int64_t n,
                            numerics::Bf16* weights) {
  constexpr int64_t kGrain = int64_t{1} << 16;
  context.parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) weights[i] = numerics::float_to_bfloat16(masters[i]);
  });
}

void adamw_bf16_cpu(const cpu::Context& context, const AdamWFactors& factors, bool apply_decay,
                    const int64_t* image, int64_t n, float* m, float* v, float* w, numerics::Bf16* weights) {
  adamw_cpu(context, factors, apply_decay, image, n, m, v, w);
  round_weights_bf16_cpu(context, w, n, weights);
}

}  // namespace lockstep::ops
