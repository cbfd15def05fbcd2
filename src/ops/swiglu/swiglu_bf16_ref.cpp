// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu_bf16.h"

#include <cmath>

#include "numerics/math.h"

namespace lockstep::ops {

using numerics::Bf16;
using numerics::bfloat16_to_float;
using numerics::float_to_bfloat16;

void swiglu_forward_bf16_ref(const Bf16* gate_up, int64_t rows, int64_t f, Bf16* y) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * f, y += f) {
    for (int64_t i = 0; i < f; ++i) {
      const float g = bfloat16_to_float(gate_up[i]);
      const float u = bfloat16_to_float(gate_up[f + i]);
      y[i] = float_to_bfloat16((g / (1.0F + numerics::exp(-g))) * u);
    }
  }
}

void swiglu_backward_bf16_ref(const Bf16* dy, const Bf16* gate_up, int64_t rows, int64_t f, Bf16* d_gate_up) {
  for (int64_t row = 0; row < rows; ++row, dy += f, gate_up += 2 * f, d_gate_up += 2 * f) {
    for (int64_t i = 0; i < f; ++i) {
      const float g = bfloat16_to_float(gate_up[i]);
      const float u = bfloat16_to_float(gate_up[f + i]);
      const float d = bfloat16_to_float(dy[i]);
      const float denominator = 1.0F + numerics::exp(-g);
      const float t = 1.0F / denominator;
      d_gate_up[f + i] = float_to_bfloat16(d * (g / denominator));
      d_gate_up[i] = float_to_bfloat16((d * u) * (t * std::fma(g, 1.0F - t, 1.0F)));
    }
  }
}

}  // namespace lockstep::ops
