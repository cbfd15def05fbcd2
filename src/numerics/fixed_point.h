// SPDX-License-Identifier: Apache-2.0
// Gradients as integers: multiples of 2^-44 in int64, added in any order (docs/numerics.md, Leaves).
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/constants.h"
#include "numerics/host_device.h"

namespace lockstep::numerics {

// round-to-nearest-even of x * 2^44. Requires |x| < 2^18 (in_gradient_range); the product by a power of two
// is exact.
LOCKSTEP_HD int64_t gradient_to_fixed(float x) {
  const double scaled = static_cast<double>(x) * 0x1p44;  // exact; |scaled| < 2^62
#if defined(__CUDA_ARCH__)
  return __double2ll_rn(scaled);
#else
  return static_cast<int64_t>(std::rint(scaled));  // from 2^52 on a double is an integer already
#endif
}

// False for NaN, infinity and |x| >= bound. bound = 2^18 / pieces (see gradient_bound).
LOCKSTEP_HD bool in_gradient_range(float x, float bound) {
  return x < bound && x > -bound;
}

// The exclusive bound for one of `pieces` terms: 2^18 / pieces in binary64, rounded once.
LOCKSTEP_HD float gradient_bound(int64_t pieces) {
  return static_cast<float>(0x1p18 / static_cast<double>(pieces));
}

// binary32(image * 2^-44), one rounding.
LOCKSTEP_HD float gradient_from_fixed(int64_t image) {
  return static_cast<float>(image) * 0x1p-44F;
}

}  // namespace lockstep::numerics
