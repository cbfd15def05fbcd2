// SPDX-License-Identifier: Apache-2.0
#include "ops/vector_gradient/vector_gradient_cuda.h"

#include "cuda_arrays.h"
#include "ops/vector_gradient/vector_gradient.h"
#include "ops/vector_gradient/vector_gradient_bf16.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::FaultWord;
using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;
using lockstep::testing::profile_values;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

struct Fp32 {
  using Type = float;
  static constexpr auto kGainRef = gain_gradient_ref;
  static constexpr auto kGain = gain_gradient_fp32_cuda;
  static constexpr auto kBiasRef = bias_gradient_ref;
  static constexpr auto kBias = bias_gradient_fp32_cuda;
};
struct B16 {
  using Type = Bf16;
  static constexpr auto kGainRef = gain_gradient_bf16_ref;
  static constexpr auto kGain = gain_gradient_bf16_cuda;
  static constexpr auto kBiasRef = bias_gradient_bf16_ref;
  static constexpr auto kBias = bias_gradient_bf16_cuda;
};

template <typename P>
void compare(const cuda::Context& context, const std::vector<SampleRows>& samples, int64_t h, int64_t n,
             bool with_bad) {
  using T = typename P::Type;
  const int64_t rows = samples.empty() ? 0 : samples.back().end;
  const int64_t count = static_cast<int64_t>(samples.size());
  TestRandom random(static_cast<uint64_t>(rows * 1000 + h));
  std::vector<float> wide = random.values(rows * h, 2.0F);
  if (with_bad && rows > 0) wide[random.below(rows * h)] = 3e38F;
  const auto dy = profile_values<T>(wide);
  const auto x = profile_values<T>(random.values(rows * h));
  const std::vector<float> r = random.values(rows);
  constexpr float kBound = 1024.0F;
  std::vector<int64_t> gain(static_cast<size_t>(h), -5), bias(static_cast<size_t>(n), 9);
  std::vector<int64_t> want_gain = gain, want_bias = bias;
  const bool gain_ok =
      P::kGainRef(dy.data(), x.data(), r.data(), h, samples.data(), count, kBound, want_gain.data());
  const bool bias_ok = P::kBiasRef(dy.data(), h, n, samples.data(), count, kBound, want_bias.data());

  const std::vector<VectorPiece> pieces = vector_pieces(samples.data(), count);
  const auto n_pieces = static_cast<int64_t>(pieces.size());
  OnDevice<VectorPiece> d_pieces(context, pieces);
  OnDevice<T> d_dy(context, dy), d_x(context, x);
  OnDevice<float> d_r(context, r);
  OnDevice<int64_t> d_gain(context, gain), d_bias(context, bias);
  FaultWord fault(context), bias_fault(context);
  P::kGain(context, d_dy.data(), d_x.data(), d_r.data(), h, d_pieces.data(), n_pieces, kBound, d_gain.data(),
           fault.at(3));
  EXPECT_TRUE(same_bits(want_gain, d_gain.host())) << rows << " x " << h;
  EXPECT_EQ(fault.value(), gain_ok ? cuda::kNoFault : 3U);
  P::kBias(context, d_dy.data(), h, n, d_pieces.data(), n_pieces, kBound, d_bias.data(), bias_fault.at(4));
  EXPECT_TRUE(same_bits(want_bias, d_bias.host())) << rows << " x " << n << " of " << h;
  EXPECT_EQ(bias_fault.value(), bias_ok ? cuda::kNoFault : 4U);
}

TEST(VectorGradientCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  const std::vector<std::vector<SampleRows>> cuts = {
      {}, {{0, 1}}, {{0, 64}, {64, 65}}, {{0, 63}, {64, 200}, {208, 209}, {224, 224}, {224, 500}}};
  for_each_cuda_context([&](const cuda::Context& context) {
    for (const std::vector<SampleRows>& samples : cuts) {
      for (const int64_t h : {1, 6, 64, 515, 896, 1152}) {
        for (const bool bad : {false, true}) {
          compare<Fp32>(context, samples, h, h, bad);
          compare<B16>(context, samples, h, h, bad);
          compare<Fp32>(context, samples, h, h / 2 + 1, bad);
          compare<B16>(context, samples, h, h / 2 + 1, bad);
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::ops
