// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "numerics/math.h"
#include "ops/swiglu/swiglu.h"

namespace lockstep::ops {

void swiglu_forward_ref(const float* gate_up, int64_t rows, int64_t f, float* y) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * f, y += f) {
    for (int64_t i = 0; i < f; ++i) {
      const float g = gate_up[i];
      y[i] = (g / (1.0F + numerics::exp(-g))) * gate_up[f + i];
    }
  }
}

void swiglu_backward_ref(const float* dy, const float* gate_up, int64_t rows, int64_t f, float* d_gate_up) {
  for (int64_t row = 0; row < rows; ++row, dy += f, gate_up += 2 * f, d_gate_up += 2 * f) {
    for (int64_t i = 0; i < f; ++i) {
      const float g = gate_up[i];
      const float u = gate_up[f + i];
      const float denominator = 1.0F + numerics::exp(-g);
      const float t = 1.0F / denominator;
      d_gate_up[f + i] = dy[i] * (g / denominator);
      d_gate_up[i] = (dy[i] * u) * (t * std::fma(g, 1.0F - t, 1.0F));
    }
  }
}

}  // namespace lockstep::ops
