// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "numerics/fixed_point.h"
#include "ops/adamw/adamw.h"

namespace lockstep::ops {
namespace {

// 1/(1 - base^exponent).
double bias_correction(double base, int64_t exponent) {
  double power = 1.0;
  for (int64_t i = 0; i < exponent; ++i) power = power * base;
  return 1.0 / (1.0 - power);
}

}  // namespace

AdamWFactors adamw_factors(const AdamWSettings& settings, double lr, double clip, int64_t step) {
  AdamWFactors f;
  f.clip = static_cast<float>(clip);
  f.beta1 = static_cast<float>(settings.beta1);
  f.one_minus_beta1 = static_cast<float>(1.0 - settings.beta1);
  f.beta2 = static_cast<float>(settings.beta2);
  f.one_minus_beta2 = static_cast<float>(1.0 - settings.beta2);
  f.correction1 = static_cast<float>(bias_correction(settings.beta1, step));
  f.correction2 = static_cast<float>(bias_correction(settings.beta2, step));
  f.eps = static_cast<float>(settings.eps);
  f.negative_lr = static_cast<float>(-lr);
  f.weight_decay = static_cast<float>(settings.weight_decay);
  return f;
}

void adamw_ref(const AdamWFactors& f, bool apply_decay, const int64_t* image, int64_t n, float* m, float* v,
               float* w) {
  const float decay = apply_decay ? f.weight_decay : 0.0F;
  for (int64_t i = 0; i < n; ++i) {
    const float g = numerics::gradient_from_fixed(image[i]) * f.clip;
    m[i] = std::fma(f.beta1, m[i], f.one_minus_beta1 * g);
    v[i] = std::fma(f.beta2, v[i], (f.one_minus_beta2 * g) * g);
    const float u = (m[i] * f.correction1) / (std::sqrt(v[i] * f.correction2) + f.eps);
    w[i] = std::fma(f.negative_lr, std::fma(decay, w[i], u), w[i]);
  }
}

}  // namespace lockstep::ops
