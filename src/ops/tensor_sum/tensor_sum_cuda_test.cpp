// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_sum/tensor_sum_cuda.h"

#include "cuda_arrays.h"
#include "ops/tensor_sum/tensor_sum.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

TEST(TensorSumCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  // Not in the order of their places.
  const std::vector<std::vector<int64_t>> cases = {
      {}, {0}, {1}, {127, 0, 129}, {65536, 65537, 0, 1, 896, 0}, {300000, 5, 2100000, 64, 131072, 77}};
  for (const std::vector<int64_t>& sizes : cases) {
    int64_t n = 1;
    for (const int64_t size : sizes) n += size + 3;
    TestRandom random(static_cast<uint64_t>(n));
    std::vector<int64_t> image(static_cast<size_t>(n));
    for (int64_t& i : image) i = static_cast<int64_t>(random.next()) >> (2 + random.below(50));
    TensorSumTable table;
    std::vector<double> want;
    double total = 0.0;
    int64_t end = n;
    for (const int64_t size : sizes) {
      end -= size + 3;
      add_tensor(&table, end, size);
      want.push_back(gradient_sum_of_squares_ref(image.data() + end, size));
      total = total + want.back();
    }
    for_each_cuda_context([&](const cuda::Context& context) {
      OnDevice<int64_t> d_image(context, image);
      OnDevice<TensorSumSlice> d_slices(context, table.slices);
      OnDevice<double> d_total(context, 1), d_each(context, static_cast<int64_t>(sizes.size()));
      gradient_sum_of_squares_cuda(context, d_image.data(), d_slices.data(),
                                   static_cast<int64_t>(sizes.size()), table.blocks, d_total.data(),
                                   d_each.data());
      EXPECT_TRUE(same_bits(want, d_each.host()));
      EXPECT_TRUE(same_bits(std::vector<double>{total}, d_total.host()));
      OnDevice<double> again(context, 1);
      gradient_sum_of_squares_cuda(context, d_image.data(), d_slices.data(),
                                   static_cast<int64_t>(sizes.size()), table.blocks, again.data(), nullptr);
      EXPECT_TRUE(same_bits(std::vector<double>{total}, again.host()));
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
