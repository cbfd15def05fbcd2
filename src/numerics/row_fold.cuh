// SPDX-License-Identifier: Apache-2.0
// reduce.h in one warp: thread t holds lanes 4t .. 4t+3 of the 128.
#pragma once

#include "numerics/reduce.h"

namespace lockstep::numerics {

static_assert(kSumLanes == 128);

// fold_lanes of the warp's 128 lanes, in every thread. A butterfly: both partners of a step compute the one
// sum, whose operands commute.
__device__ __forceinline__ float warp_fold(const float (&lanes)[4]) {
  float sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
#pragma unroll
  for (int width = 1; width < 32; width *= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFU, sum, width);
  return sum;
}

}  // namespace lockstep::numerics
