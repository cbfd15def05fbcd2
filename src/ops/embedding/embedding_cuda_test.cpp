// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding_cuda.h"

#include "cuda_arrays.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/embedding_bf16.h"

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
  static constexpr auto kForwardRef = embedding_forward_ref;
  static constexpr auto kForward = embedding_forward_fp32_cuda;
  static constexpr auto kGradientRef = embedding_gradient_ref;
  static constexpr auto kGradient = embedding_gradient_fp32_cuda;
};
struct B16 {
  using Type = Bf16;
  static constexpr auto kForwardRef = embedding_forward_bf16_ref;
  static constexpr auto kForward = embedding_forward_bf16_cuda;
  static constexpr auto kGradientRef = embedding_gradient_bf16_ref;
  static constexpr auto kGradient = embedding_gradient_bf16_cuda;
};

constexpr int64_t kVocab = 29;

template <typename P>
void compare(const cuda::Context& context, int64_t rows, int64_t h, bool with_bad) {
  using T = typename P::Type;
  TestRandom random(static_cast<uint64_t>(rows * 1000 + h));
  const auto table = profile_values<T>(random.values(kVocab * h));
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(kVocab));
  std::vector<float> wide = random.values(rows * h, 10.0F);
  if (with_bad && rows > 0) {
    wide[random.below(rows * h)] = 1e9F;
    wide[random.below(rows * h)] = -2048.0F;  // the bound itself
    wide[random.below(rows * h)] = std::bit_cast<float>(0x7FC00000U);
  }
  const auto dh = profile_values<T>(wide);
  std::vector<T> out(static_cast<size_t>(rows * h));
  P::kForwardRef(table.data(), ids.data(), rows, h, out.data());
  std::vector<int64_t> image(static_cast<size_t>(kVocab * h), 77);
  std::vector<int64_t> want = image;
  const bool in_range = P::kGradientRef(dh.data(), ids.data(), rows, h, 2048.0F, want.data());

  OnDevice<T> d_table(context, table), d_dh(context, dh), d_out(context, rows * h);
  OnDevice<int32_t> d_ids(context, ids);
  OnDevice<int64_t> d_image(context, image);
  FaultWord fault(context);
  P::kForward(context, d_table.data(), d_ids.data(), rows, h, d_out.data());
  EXPECT_TRUE(same_bits(out, d_out.host())) << rows << " x " << h;
  P::kGradient(context, d_dh.data(), d_ids.data(), rows, h, 2048.0F, d_image.data(), fault.at(42));
  EXPECT_TRUE(same_bits(want, d_image.host())) << rows << " x " << h;
  EXPECT_EQ(fault.value(), in_range ? cuda::kNoFault : 42U);
}

TEST(EmbeddingCuda, EqualsReference) {
  LOCKSTEP_NEEDS_GPU();
  for_each_cuda_context([](const cuda::Context& context) {
    for (const int64_t h : {1, 8, 33, 896}) {
      for (const int64_t rows : {0, 1, 70, 500}) {
        for (const bool bad : {false, true}) {
          compare<Fp32>(context, rows, h, bad);
          compare<B16>(context, rows, h, bad);
        }
      }
    }
  });
}

TEST(EmbeddingCuda, PaddingRows) {
  LOCKSTEP_NEEDS_GPU();
  for_each_cuda_context([](const cuda::Context& context) {
    OnDevice<float> table(context, std::vector<float>(16, 3.0F)), out(context, 24);
    OnDevice<int32_t> ids(context, std::vector<int32_t>{-1, 1, -1});
    OnDevice<int64_t> image(context, std::vector<int64_t>(16, 0));
    FaultWord fault(context);
    embedding_forward_fp32_cuda(context, table.data(), ids.data(), 3, 8, out.data());
    const std::vector<float> got = out.host();
    for (size_t i = 0; i < 24; ++i) EXPECT_EQ(got[i], i / 8 == 1 ? 3.0F : 0.0F);
    OnDevice<float> dh(context, std::vector<float>(24, 1e30F));
    OnDevice<int32_t> none(context, std::vector<int32_t>{-1, -1, -1});
    embedding_gradient_fp32_cuda(context, dh.data(), none.data(), 3, 8, 1.0F, image.data(), fault.at());
    EXPECT_EQ(image.host(), std::vector<int64_t>(16, 0));
    EXPECT_EQ(fault.value(), cuda::kNoFault);
  });
}

}  // namespace
}  // namespace lockstep::ops
