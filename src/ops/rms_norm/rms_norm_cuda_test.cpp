// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm/rms_norm_cuda.h"

#include "cuda_arrays.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/rms_norm_bf16.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;
using lockstep::testing::profile_values;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

constexpr float kEps = 1e-6F;

struct Fp32 {
  using Type = float;
  static constexpr auto kForwardRef = rms_norm_forward_ref;
  static constexpr auto kForward = rms_norm_forward_fp32_cuda;
  static constexpr auto kBackwardRef = rms_norm_backward_ref;
  static constexpr auto kBackward = rms_norm_backward_fp32_cuda;
};
struct B16 {
  using Type = Bf16;
  static constexpr auto kForwardRef = rms_norm_forward_bf16_ref;
  static constexpr auto kForward = rms_norm_forward_bf16_cuda;
  static constexpr auto kBackwardRef = rms_norm_backward_bf16_ref;
  static constexpr auto kBackward = rms_norm_backward_bf16_cuda;
};

// Rows of usual size, tiny (subnormal squares), huge, zero and with -0.
std::vector<float> rows_of(int64_t rows, int64_t h, uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> x = random.values(rows * h, 3.0F);
  for (int64_t row = 0; row < rows; ++row) {
    const float factors[] = {1.0F, 1e-30F, 1e15F, 0.0F, -0.0F, 1e-39F};
    for (int64_t i = 0; i < h; ++i) x[row * h + i] *= factors[row % 6];
  }
  return x;
}

template <typename P>
void compare(const cuda::Context& context, int64_t rows, int64_t h, int64_t skip) {
  using T = typename P::Type;
  TestRandom random(static_cast<uint64_t>(h));
  const auto x = profile_values<T>(rows_of(rows, h, static_cast<uint64_t>(h + rows)));
  const auto gain = profile_values<T>(random.values(h, 2.0F));
  const auto dy = profile_values<T>(random.values(rows * h));
  const auto dh = profile_values<T>(random.values(rows * h));
  std::vector<T> y(static_cast<size_t>(rows * h));
  std::vector<float> r(static_cast<size_t>(rows));
  P::kForwardRef(x.data(), gain.data(), kEps, rows, h, y.data(), r.data());
  std::vector<T> want = dh;
  P::kBackwardRef(dy.data(), x.data(), gain.data(), r.data(), rows, h, want.data());

  OnDevice<T> d_x(context, x, skip), d_gain(context, gain, skip), d_dy(context, dy, skip);
  OnDevice<T> d_y(context, rows * h, skip), d_dh(context, dh, skip);
  OnDevice<float> d_r(context, rows);
  P::kForward(context, d_x.data(), d_gain.data(), kEps, rows, h, d_y.data(), d_r.data());
  EXPECT_TRUE(same_bits(y, d_y.host())) << rows << " x " << h << " skip " << skip;
  EXPECT_TRUE(same_bits(r, d_r.host())) << rows << " x " << h;
  OnDevice<T> again(context, rows * h, skip);
  P::kForward(context, d_x.data(), d_gain.data(), kEps, rows, h, again.data(), nullptr);
  EXPECT_TRUE(same_bits(y, again.host()));
  P::kBackward(context, d_dy.data(), d_x.data(), d_gain.data(), d_r.data(), rows, h, d_dh.data());
  EXPECT_TRUE(same_bits(want, d_dh.host())) << rows << " x " << h << " skip " << skip;
}

TEST(RmsNormCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  for_each_cuda_context([](const cuda::Context& context) {
    for (const int64_t h : {1, 2, 31, 127, 128, 132, 255, 896, 1000, 1024, 1540, 3584}) {
      for (const int64_t rows : {0, 1, 7, 50}) {
        for (const int64_t skip : {0, 1}) {
          compare<Fp32>(context, rows, h, skip);
          compare<B16>(context, rows, h, skip);
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::ops
