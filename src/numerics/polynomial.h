// SPDX-License-Identifier: Apache-2.0
// Horner's rule with the coefficients as compile-time constants (device code can not read a host table).
#pragma once

#include <cmath>

#include "numerics/host_device.h"

namespace lockstep::numerics {

template <const auto& kCoefficients, int kTerm, typename T>
LOCKSTEP_HD T horner_from(T p, T x) {
  if constexpr (kTerm < static_cast<int>(sizeof(kCoefficients) / sizeof(kCoefficients[0]))) {
    constexpr T kNext = kCoefficients[kTerm];
    return horner_from<kCoefficients, kTerm + 1>(std::fma(p, x, kNext), x);
  } else {
    return p;
  }
}

// Highest degree first: p = c[0]; then p = fma(p, x, c[i]) for i = 1, 2, ...
template <const auto& kCoefficients, typename T>
LOCKSTEP_HD T horner(T x) {
  constexpr T kFirst = kCoefficients[0];
  return horner_from<kCoefficients, 1>(kFirst, x);
}

}  // namespace lockstep::numerics
