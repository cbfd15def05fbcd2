// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "numerics/reduce.h"
#include "ops/rms_norm/rms_norm_bf16.h"

namespace lockstep::ops {

using numerics::Bf16;
using numerics::bfloat16_to_float;
using numerics::float_to_bfloat16;

void rms_norm_forward_bf16_ref(const Bf16* x, const Bf16* gain, float eps, int64_t rows, int64_t h, Bf16* y,
                               float* inverse_rms) {
  std::vector<float> wide(h);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    for (int64_t i = 0; i < h; ++i) wide[i] = bfloat16_to_float(x[i]);
    const float mean = numerics::row_dot(wide.data(), wide.data(), h) / static_cast<float>(h);
    const float r = 1.0F / std::sqrt(mean + eps);
    for (int64_t i = 0; i < h; ++i) y[i] = float_to_bfloat16((wide[i] * r) * bfloat16_to_float(gain[i]));
    if (inverse_rms != nullptr) inverse_rms[row] = r;
  }
}

void rms_norm_backward_bf16_ref(const Bf16* dy, const Bf16* x, const Bf16* gain, const float* inverse_rms,
                                int64_t rows, int64_t h, Bf16* dh) {
  std::vector<float> t(h);
  std::vector<float> xr(h);
  for (int64_t row = 0; row < rows; ++row, dy += h, x += h, dh += h) {
    const float r = inverse_rms[row];
    for (int64_t i = 0; i < h; ++i) t[i] = bfloat16_to_float(dy[i]) * bfloat16_to_float(gain[i]);
    for (int64_t i = 0; i < h; ++i) xr[i] = bfloat16_to_float(x[i]) * r;
    const float c = numerics::row_dot(t.data(), xr.data(), h) / static_cast<float>(h);
    for (int64_t i = 0; i < h; ++i) {
      const float dx = r * std::fma(-xr[i], c, t[i]);
      dh[i] = float_to_bfloat16(bfloat16_to_float(dh[i]) + dx);
    }
  }
}

}  // namespace lockstep::ops
