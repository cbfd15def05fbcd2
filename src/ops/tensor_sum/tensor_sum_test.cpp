// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_sum/tensor_sum.h"

#include <algorithm>

#include "cpu_contexts.h"
#include "numerics/constants.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::bits_of;
using lockstep::testing::for_each_context;
using lockstep::testing::TestRandom;

// Images over the whole range: |x| < 2^62, many small, some zero.
std::vector<int64_t> images(int64_t n, uint64_t seed) {
  TestRandom random(seed);
  std::vector<int64_t> out(n);
  for (int64_t& x : out) x = static_cast<int64_t>(random.next()) >> (2 + random.below(62));
  return out;
}

TEST(TensorSum, EqualsReference) {
  constexpr int64_t kBlock = numerics::kTensorSumBlock;
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128}, int64_t{129}, int64_t{5000},
                          kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 77}) {
    const std::vector<int64_t> image = images(n, n);
    const double want = gradient_sum_of_squares_ref(image.data(), n);
    for_each_context([&](const cpu::Context& context) {
      EXPECT_EQ(bits_of(want), bits_of(gradient_sum_of_squares_cpu(context, image.data(), n))) << n;
    });
  }
}

// Shards on block borders, their sums added ascending, give the whole tensor's bits.
TEST(TensorSum, ShardsOnBlockBorders) {
  constexpr int64_t kBlock = numerics::kTensorSumBlock;
  const std::vector<int64_t> image = images(2 * kBlock + 100, 1);
  double sum = 0;
  for (int64_t first = 0; first < static_cast<int64_t>(image.size()); first += kBlock) {
    const int64_t n = std::min(kBlock, static_cast<int64_t>(image.size()) - first);
    sum = sum + gradient_sum_of_squares_ref(image.data() + first, n);
  }
  EXPECT_EQ(bits_of(sum),
            bits_of(gradient_sum_of_squares_ref(image.data(), static_cast<int64_t>(image.size()))));
}

TEST(TensorSum, CountsInUnitsOfTheGradient) {
  const std::vector<int64_t> image = {int64_t{3} << 44, -(int64_t{4} << 44)};
  EXPECT_EQ(gradient_sum_of_squares_ref(image.data(), 2), 25.0);
}

}  // namespace
}  // namespace lockstep::ops
