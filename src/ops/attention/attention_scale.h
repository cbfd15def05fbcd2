// SPDX-License-Identifier: Apache-2.0
// The two scales of attention, functions of the head size only.
#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep::ops {

// c = binary32(log2(e)/sqrt(d)): scores are exponents of two.
inline float attention_score_scale(int64_t head_size) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  return static_cast<float>(kLog2E / std::sqrt(static_cast<double>(head_size)));
}
// binary32(1/sqrt(d)): of the gradients of q and k.
inline float attention_gradient_scale(int64_t head_size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
}

}  // namespace lockstep::ops
