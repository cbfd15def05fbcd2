// SPDX-License-Identifier: Apache-2.0
// The order of a sum over a row: 128 strided lanes, each a chain of fma, folded by lane^1, ^2, ..., ^64.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/constants.h"
#include "numerics/host_device.h"

namespace lockstep::numerics {

// Folds 128 lanes pairwise: (0+1), (2+3), ...; then pairs of pairs. Destroys `lanes`; returns the sum.
template <typename T>
LOCKSTEP_HD T fold_lanes(T* lanes) {
  for (int width = 1; width < kSumLanes; width *= 2) {
    for (int i = 0; i < kSumLanes; i += 2 * width) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0];
}

// Sum over i of a[i] * b[i], i in [0, n). Lane i % 128 is a chain of fma in ascending i from +0.
template <typename T>
LOCKSTEP_HD T row_dot(const T* a, const T* b, int64_t n) {
  T lanes[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int lane = 0; lane < kSumLanes; ++lane)
      lanes[lane] = std::fma(a[i + lane], b[i + lane], lanes[lane]);
  }
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] = std::fma(a[i + lane], b[i + lane], lanes[lane]);
  return fold_lanes(lanes);
}

}  // namespace lockstep::numerics
