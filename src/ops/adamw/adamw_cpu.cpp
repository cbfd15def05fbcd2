// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "numerics/fixed_point.h"
#include "ops/adamw/adamw.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kBlock = 256;  // elements whose gradient is converted first (AVX2 cannot convert int64)
constexpr int64_t kElementsPerTask = 16384;

void update(const AdamWFactors& f, float decay, const float* __restrict gradient, int64_t n,
            float* __restrict m, float* __restrict v, float* __restrict w) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * f.clip;
    const float m1 = std::fma(f.beta1, m[i], f.one_minus_beta1 * g);
    const float v1 = std::fma(f.beta2, v[i], (f.one_minus_beta2 * g) * g);
    const float u = (m1 * f.correction1) / (std::sqrt(v1 * f.correction2) + f.eps);
    m[i] = m1;
    v[i] = v1;
    w[i] = std::fma(f.negative_lr, std::fma(decay, w[i], u), w[i]);
  }
}

}  // namespace

void adamw_cpu(const cpu::Context& context, const AdamWFactors& factors, bool apply_decay,
               const int64_t* image, int64_t n, float* m, float* v, float* w) {
  const float decay = apply_decay ? factors.weight_decay : 0.0F;
  context.parallel_ranges(n, kElementsPerTask, [&](int64_t begin, int64_t end) {
    float gradient[kBlock];
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t size = std::min(kBlock, end - first);
      for (int64_t i = 0; i < size; ++i) gradient[i] = numerics::gradient_from_fixed(image[first + i]);
      update(factors, decay, gradient, size, m + first, v + first, w + first);
    }
  });
}

}  // namespace lockstep::ops
