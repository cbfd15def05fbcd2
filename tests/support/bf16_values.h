// SPDX-License-Identifier: Apache-2.0
// Inputs of profile bf16 for CPU tests.
#pragma once

#include <vector>

#include "numerics/bfloat16.h"
#include "same_bits.h"

namespace lockstep::testing {

inline std::vector<numerics::Bf16> to_bf16(const std::vector<float>& x) {
  std::vector<numerics::Bf16> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = numerics::float_to_bfloat16(x[i]);
  return out;
}

// Values of usual size, zeros of both signs, tiny ones (subnormal, too) and large ones.
inline std::vector<numerics::Bf16> mixed_bf16(int64_t n, uint64_t seed, float scale = 1.0F) {
  TestRandom random(seed);
  std::vector<float> x = random.values(n, scale);
  for (float& v : x) {
    const float factors[] = {0.0F, -0.0F, 1e-30F, 1e-39F, 1e6F, 0x1p-20F};
    const int64_t kind = random.below(24);
    if (kind < 6) v *= factors[kind];
  }
  return to_bf16(x);
}

// A quiet NaN everywhere: an element that was not written is seen.
inline std::vector<numerics::Bf16> poisoned_bf16(int64_t n) {
  return std::vector<numerics::Bf16>(static_cast<size_t>(n), 0xFFFF);
}

}  // namespace lockstep::testing
