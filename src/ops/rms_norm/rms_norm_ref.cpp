// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "numerics/reduce.h"
#include "ops/rms_norm/rms_norm.h"

namespace lockstep::ops {

void rms_norm_forward_ref(const float* x, const float* gain, float eps, int64_t rows, int64_t h, float* y,
                          float* inverse_rms) {
  const float size = static_cast<float>(h);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    const float mean = numerics::row_dot(x, x, h) / size;
    const float r = 1.0F / std::sqrt(mean + eps);
    for (int64_t i = 0; i < h; ++i) y[i] = (x[i] * r) * gain[i];
    if (inverse_rms != nullptr) inverse_rms[row] = r;
  }
}

void rms_norm_backward_ref(const float* dy, const float* x, const float* gain, const float* inverse_rms,
                           int64_t rows, int64_t h, float* dh) {
  std::vector<float> t(h);
  std::vector<float> xr(h);
  for (int64_t row = 0; row < rows; ++row, dy += h, x += h, dh += h) {
    const float r = inverse_rms[row];
    for (int64_t i = 0; i < h; ++i) t[i] = dy[i] * gain[i];
    for (int64_t i = 0; i < h; ++i) xr[i] = x[i] * r;
    const float c = numerics::row_dot(t.data(), xr.data(), h) / static_cast<float>(h);
    for (int64_t i = 0; i < h; ++i) {
      const float dx = r * std::fma(-xr[i], c, t[i]);
      dh[i] = dh[i] + dx;
    }
  }
}

}  // namespace lockstep::ops
