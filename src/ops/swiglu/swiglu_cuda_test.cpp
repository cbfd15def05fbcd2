// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu_cuda.h"

#include "cuda_arrays.h"
#include "ops/swiglu/swiglu.h"
#include "ops/swiglu/swiglu_bf16.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::mixed_values;
using lockstep::testing::OnDevice;
using lockstep::testing::profile_values;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

struct Fp32 {
  using Type = float;
  static constexpr auto kForwardRef = swiglu_forward_ref;
  static constexpr auto kForward = swiglu_forward_fp32_cuda;
  static constexpr auto kBackwardRef = swiglu_backward_ref;
  static constexpr auto kBackward = swiglu_backward_fp32_cuda;
};
struct B16 {
  using Type = Bf16;
  static constexpr auto kForwardRef = swiglu_forward_bf16_ref;
  static constexpr auto kForward = swiglu_forward_bf16_cuda;
  static constexpr auto kBackwardRef = swiglu_backward_bf16_ref;
  static constexpr auto kBackward = swiglu_backward_bf16_cuda;
};

template <typename P>
void compare(const cuda::Context& context, const std::vector<float>& values, int64_t rows, int64_t f,
             int64_t skip) {
  using T = typename P::Type;
  const auto gate_up = profile_values<T>(values);
  const auto dy = profile_values<T>(TestRandom(9).values(rows * f));
  std::vector<T> y(static_cast<size_t>(rows * f));
  P::kForwardRef(gate_up.data(), rows, f, y.data());
  std::vector<T> want(gate_up.size());
  P::kBackwardRef(dy.data(), gate_up.data(), rows, f, want.data());

  OnDevice<T> d_gate_up(context, gate_up, skip), d_dy(context, dy, skip), d_y(context, rows * f, skip);
  OnDevice<T> d_out(context, rows * f * 2, skip);
  P::kForward(context, d_gate_up.data(), rows, f, d_y.data());
  EXPECT_TRUE(same_bits(y, d_y.host())) << rows << " x " << f;
  P::kBackward(context, d_dy.data(), d_gate_up.data(), rows, f, d_out.data(), nullptr);
  EXPECT_TRUE(same_bits(want, d_out.host())) << rows << " x " << f;
  OnDevice<T> d_again(context, rows * f, skip);
  P::kBackward(context, d_dy.data(), d_gate_up.data(), rows, f, d_gate_up.data(), d_again.data());
  EXPECT_TRUE(same_bits(want, d_gate_up.host())) << rows << " x " << f << " in place";
  EXPECT_TRUE(same_bits(y, d_again.host())) << rows << " x " << f << " again";
}

TEST(SwigluCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  for_each_cuda_context([](const cuda::Context& context) {
    for (const int64_t f : {1, 3, 8, 100, 256, 4864}) {
      for (const int64_t rows : {0, 1, 9, 33}) {
        std::vector<float> x = mixed_values(rows * f * 2, static_cast<uint64_t>(f), 12.0F);
        for (float& v : x) v = v > 1e4F ? 1e4F : (v < -1e4F ? -1e4F : v);  // no infinity times zero
        compare<Fp32>(context, x, rows, f, 0);
        compare<B16>(context, x, rows, f, 0);
        compare<Fp32>(context, x, rows, f, 1);
        compare<B16>(context, x, rows, f, 1);
      }
    }
  });
}

// Every bfloat16 gate but NaN and infinities: all of exp's ranges.
TEST(SwigluCuda, EqualsReferenceForAllGates) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t kRow = 1024;
  std::vector<float> x;
  for (uint32_t row = 0; row < 64; ++row) {
    for (uint32_t i = 0; i < kRow; ++i) {
      const float gate = numerics::bfloat16_to_float(static_cast<Bf16>(row * kRow + i));
      x.push_back(gate - gate == 0 ? gate : 1.0F);
    }
    for (int64_t i = 0; i < kRow; ++i) x.push_back(0.75F);
  }
  for_each_cuda_context([&](const cuda::Context& context) {
    compare<Fp32>(context, x, 64, kRow, 0);
    compare<B16>(context, x, 64, kRow, 0);
  });
}

}  // namespace
}  // namespace lockstep::ops
