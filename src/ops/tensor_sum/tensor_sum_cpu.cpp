// SPDX-License-Identifier: Apache-2.0
// Blocks in parallel, added ascending afterwards.
#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/fixed_point.h"
#include "numerics/reduce.h"
#include "ops/tensor_sum/tensor_sum.h"

namespace lockstep::ops {
namespace {

using numerics::kSumLanes;

double block_sum(const int64_t* image, int64_t n) {
  double lanes[kSumLanes] = {};
  float g[kSumLanes];
  for (int64_t i = 0; i < n; i += kSumLanes) {
    const int count = static_cast<int>(std::min<int64_t>(kSumLanes, n - i));
    // Apart from the sums, which the compiler vectorises: AVX2 has no conversion of int64.
    for (int lane = 0; lane < count; ++lane) g[lane] = numerics::gradient_from_fixed(image[i + lane]);
    if (count == kSumLanes) {
      for (int lane = 0; lane < kSumLanes; ++lane)
        lanes[lane] = std::fma(static_cast<double>(g[lane]), static_cast<double>(g[lane]), lanes[lane]);
    } else {
      for (int lane = 0; lane < count; ++lane)
        lanes[lane] = std::fma(static_cast<double>(g[lane]), static_cast<double>(g[lane]), lanes[lane]);
    }
  }
  return numerics::fold_lanes(lanes);
}

}  // namespace

double gradient_sum_of_squares_cpu(const cpu::Context& context, const int64_t* image, int64_t n) {
  constexpr int64_t kBlock = numerics::kTensorSumBlock;
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> sums(blocks);
  context.parallel_for(
      blocks, [&](int64_t b) { sums[b] = block_sum(image + b * kBlock, std::min(kBlock, n - b * kBlock)); });
  double sum = 0.0;
  for (const double block : sums) sum = sum + block;
  return sum;
}

}  // namespace lockstep::ops
