// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope_cuda.h"

#include "cuda_arrays.h"
#include "ops/rope/rope.h"
#include "ops/rope/rope_bf16.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::mixed_values;
using lockstep::testing::OnDevice;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

void compare(const cuda::Context& context, int64_t rows, int64_t heads, int64_t head_size, int64_t extra,
             bool inverse) {
  constexpr int64_t kPositions = 700;
  const cpu::Context cpu_context(1, cpu::Isa::kScalar);
  const RopeTable table = make_rope_table(cpu_context, 1e6, head_size, kPositions);
  const int64_t half = head_size / 2;
  const std::vector<float> cos(table.cos.data(), table.cos.data() + kPositions * half);
  const std::vector<float> sin(table.sin.data(), table.sin.data() + kPositions * half);
  const int64_t ldx = heads * head_size + extra;
  const int64_t ldo = ldx + extra;
  TestRandom random(static_cast<uint64_t>(rows + head_size));
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  for (int32_t& p : positions) p = static_cast<int32_t>(random.below(kPositions));
  const std::vector<float> x = mixed_values(rows * ldx, 5);
  std::vector<float> want = x;
  rope_ref(table, positions.data(), rows, heads, inverse, want.data(), ldx);
  std::vector<Bf16> want16(static_cast<size_t>(rows * ldo), 0xFFFF);
  rope_bf16_ref(table, positions.data(), rows, heads, inverse, x.data(), ldx, want16.data(), ldo);

  OnDevice<float> d_cos(context, cos), d_sin(context, sin), d_x(context, x);
  OnDevice<int32_t> d_positions(context, positions);
  const RopeDeviceTable d_table = {head_size, d_cos.data(), d_sin.data()};
  OnDevice<Bf16> out(context, rows * ldo);
  rope_bf16_cuda(context, d_table, d_positions.data(), rows, heads, inverse, d_x.data(), ldx, out.data(),
                 ldo);
  EXPECT_TRUE(same_bits(want16, out.host())) << rows << " rows, " << heads << " heads of " << head_size;
  rope_fp32_cuda(context, d_table, d_positions.data(), rows, heads, inverse, d_x.data(), ldx);
  EXPECT_TRUE(same_bits(want, d_x.host())) << rows << " rows, " << heads << " heads of " << head_size;
}

TEST(RopeCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  for_each_cuda_context([](const cuda::Context& context) {
    for (const int64_t head_size : {2, 6, 64, 128}) {
      for (const int64_t extra : {0, 3, 64}) {
        for (const int64_t rows : {0, 1, 37}) {
          compare(context, rows, 1, head_size, extra, false);
          compare(context, rows, 16, head_size, extra, false);
          compare(context, rows, 5, head_size, extra, true);
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::ops
