// SPDX-License-Identifier: Apache-2.0
// TensorOps::sample, a product and the draws from it, against the definitions: rows of few and of many
// tokens, whose sums of tiles are made in different kernels, under every kind of setting.
#include <limits>

#include "cuda_arrays.h"
#include "model/cuda/tensor_ops.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_bf16.h"
#include "reference_draws.h"

namespace lockstep::model {
namespace {

using lockstep::testing::FaultWord;
using lockstep::testing::OnDevice;
using lockstep::testing::profile_values;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

constexpr int64_t kVocab = 17003;  // the last tile is not whole
constexpr int64_t kWidth = 72;     // of x
constexpr int64_t kStride = 17008;
constexpr int64_t kRows = 129;
constexpr int64_t kZeroRow = 3;  // every logit the same
constexpr int64_t kBadRow = 40;  // no softmax

void reference_product(const Bf16* x, const Bf16* w, float* y) {
  ops::matmul_bf16_forward_ref(x, kWidth, w, kRows, kVocab, kWidth, y, kStride);
}
void reference_product(const float* x, const float* w, float* y) {
  ops::matmul_forward_ref(x, kWidth, w, kRows, kVocab, kWidth, {}, y, kStride);
}

template <class E>
void check_sample() {
  TestRandom random(17);
  std::vector<float> values = random.values(kRows * kWidth);
  std::fill_n(values.begin() + kZeroRow * kWidth, kWidth, 0.0F);
  values[kBadRow * kWidth + 5] = std::numeric_limits<float>::infinity();
  const std::vector<E> x = profile_values<E>(values);
  const std::vector<E> w = profile_values<E>(random.values(kVocab * kWidth));
  std::vector<float> logits = lockstep::testing::poisoned(kRows * kStride);
  reference_product(x.data(), w.data(), logits.data());

  const cuda::Context context(0);
  OnDevice<E> d_x(context, x);
  OnDevice<E> d_w(context, w);
  // temperature, top_p, top_k, sampleable
  for (const ops::SamplingSettings& settings : std::vector<ops::SamplingSettings>{{1.0, 1.0, -1, kVocab},
                                                                                  {0.0, 1.0, -1, kVocab},
                                                                                  {0.3, 0.95, -1, 16900},
                                                                                  {7.0, 1.0, 50, kVocab},
                                                                                  {1.5, 0.5, 4000, 16999}}) {
    const auto want = lockstep::testing::reference_draws(logits, kStride, kRows, kVocab, settings, 9);
    for (int64_t r = 0; r < kRows; ++r) EXPECT_EQ(want.valid[static_cast<size_t>(r)], r != kBadRow);
    OnDevice<ops::VocabularyDraw> d_draws(context, want.draws);
    for (const int64_t m : {1, 64, 65, 128, 129}) {
      SCOPED_TRACE("rows " + std::to_string(m) + " temperature " + std::to_string(settings.temperature));
      OnDevice<float> d_logits(context, m * kStride);
      OnDevice<int32_t> d_tokens(context, m);
      OnDevice<float> d_log_probs(context, m);
      FaultWord fault(context);
      TensorOps<E>::sample(context, d_x.data(), d_w.data(), m, kVocab, kWidth, settings, d_draws.data(),
                           d_logits.data(), kStride, d_tokens.data(), d_log_probs.data(), fault.at(500));
      EXPECT_EQ(std::vector<int32_t>(want.tokens.begin(), want.tokens.begin() + m), d_tokens.host());
      EXPECT_TRUE(same_bits(want.log_probs.data(), d_log_probs.host().data(), m));
      EXPECT_EQ(fault.value(), want.fault(m, 500));
    }
  }
}

TEST(SampleCuda, Bf16) {
  LOCKSTEP_NEEDS_HOPPER();
  check_sample<Bf16>();
}

TEST(SampleCuda, Fp32) {
  LOCKSTEP_NEEDS_GPU();
  check_sample<float>();
}

}  // namespace
}  // namespace lockstep::model
