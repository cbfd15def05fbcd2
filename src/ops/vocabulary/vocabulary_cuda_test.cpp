// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary/vocabulary_cuda.h"

#include <cmath>
#include <limits>

#include "cuda_arrays.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_bf16.h"
#include "reference_draws.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::FaultWord;
using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits with ties, both zeros, -inf and a few far away.
std::vector<float> special_logits(int64_t n, uint64_t seed, float scale) {
  TestRandom random(seed);
  std::vector<float> x = random.values(n, scale);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t kind = random.below(14);
    if (kind == 0) x[i] = -kInfinity;
    if (kind == 1) x[i] = std::rint(x[i]);
    if (kind == 2) x[i] = -0.0F;
    if (kind == 3) x[i] *= 20.0F;
    if (kind == 4) x[i] = random.value() * 1e-41F;
    if (i / 128 % 5 == 3) x[i] = -kInfinity;  // whole tiles
  }
  return x;
}

// Rows of `vocab` in rows of `ld`, with NaN between them.
std::vector<float> strided(const std::vector<float>& x, int64_t rows, int64_t vocab, int64_t ld) {
  std::vector<float> out = lockstep::testing::poisoned(rows * ld);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(x.begin() + r * vocab, vocab, out.begin() + r * ld);
  return out;
}

void expect_same(const VocabularySums& want, const VocabularySums& got) {
  EXPECT_EQ(want.valid, got.valid);
  EXPECT_EQ(want.max_exponent, got.max_exponent);
  EXPECT_EQ(want.sum, got.sum);
  EXPECT_EQ(want.entropy_sum, got.entropy_sum);
}

TEST(VocabularyCuda, SumsAndLogProbs) {
  LOCKSTEP_NEEDS_GPU();
  for (const int64_t vocab : {1, 5, 127, 128, 129, 1000, 5000, 33000}) {
    for (const double temperature : {1.0, 0.0009765625, 0.7, 1024.0}) {
      for (const int64_t extra : {0, 3, 64}) {
        const int64_t rows = vocab > 2000 ? 3 : 40;
        const int64_t ld = (extra == 64 ? (vocab + 3) / 4 * 4 : vocab) + extra;
        std::vector<float> x = special_logits(rows * vocab, static_cast<uint64_t>(vocab + extra), 6.0F);
        for (int64_t r = 0; r < rows; ++r) x[r * vocab] = 1.0F;
        // Rows without a softmax, of every kind.
        const float bad[] = {kInfinity, std::numeric_limits<float>::quiet_NaN(), 3e38F, -3e38F, 2e9F};
        for (int64_t r = 3; r < rows; r += 5) x[r * vocab + (r * 31) % vocab] = bad[r / 5 % 5];
        if (rows > 6) std::fill_n(x.begin() + 6 * vocab, vocab, -kInfinity);
        const std::vector<float> logits = strided(x, rows, vocab, ld);
        const float scale = vocabulary_scale(temperature);
        std::vector<VocabularySums> want(static_cast<size_t>(rows));
        vocabulary_sums_ref(logits.data(), ld, rows, vocab, scale, want.data());
        std::vector<int32_t> targets;
        std::vector<float> log_probs;
        std::vector<double> entropies;
        unsigned long long first_fault = cuda::kNoFault;
        for (int64_t r = 0; r < rows; ++r) {
          const VocabularySums& s = want[static_cast<size_t>(r)];
          targets.push_back(static_cast<int32_t>((r * 977) % vocab));
          if (!s.valid && first_fault == cuda::kNoFault) first_fault = 1000 + static_cast<uint64_t>(r);
          log_probs.push_back(s.valid ? vocabulary_log_prob(logits[r * ld + targets.back()], scale, s)
                                      : 0.0F);
          entropies.push_back(s.valid ? vocabulary_entropy(s) : 0.0);
        }
        for_each_cuda_context([&](const cuda::Context& context) {
          OnDevice<float> d_logits(context, logits);
          OnDevice<VocabularySums> d_sums(context, rows);
          OnDevice<int32_t> d_targets(context, targets);
          OnDevice<float> d_log_probs(context, rows);
          OnDevice<double> d_entropies(context, rows);
          FaultWord fault(context);
          vocabulary_sums_cuda(context, d_logits.data(), ld, rows, vocab, scale, d_sums.data());
          const std::vector<VocabularySums> got = d_sums.host();
          for (size_t r = 0; r < got.size(); ++r) expect_same(want[r], got[r]);
          vocabulary_log_probs_cuda(context, d_logits.data(), ld, rows, scale, d_sums.data(),
                                    d_targets.data(), d_log_probs.data(), d_entropies.data(), fault.at(1000));
          EXPECT_TRUE(same_bits(log_probs, d_log_probs.host()));
          EXPECT_TRUE(same_bits(entropies, d_entropies.host()));
          EXPECT_EQ(first_fault, fault.value());
        });
      }
    }
  }
}

TEST(VocabularyCuda, Gradient) {
  LOCKSTEP_NEEDS_GPU();
  for (const int64_t vocab : {1, 7, 128, 130, 1000, 5000}) {
    for (const double temperature : {1.0, 0.01, 3.0}) {
      for (const int64_t extra : {0, 3, 64}) {
        const int64_t rows = 12;
        const int64_t ld = (extra == 64 ? (vocab + 3) / 4 * 4 : vocab) + extra;
        const int64_t ldo = ld + (extra == 64 ? 64 : 1);
        std::vector<float> x = special_logits(rows * vocab, static_cast<uint64_t>(vocab + extra), 6.0F);
        for (int64_t r = 0; r < rows; ++r) x[r * vocab] = 1.0F;
        const std::vector<float> logits = strided(x, rows, vocab, ld);
        const float scale = vocabulary_scale(temperature);
        const auto inverse = static_cast<float>(1.0 / temperature);
        std::vector<VocabularySums> sums(static_cast<size_t>(rows));
        vocabulary_sums_ref(logits.data(), ld, rows, vocab, scale, sums.data());
        std::vector<VocabularyGradientRow> grads;
        TestRandom random(static_cast<uint64_t>(vocab));
        for (int64_t r = 0; r < rows; ++r) {
          grads.push_back({static_cast<int32_t>(random.below(vocab)), r % 4 == 0 ? 0.0F : random.value(),
                           r % 3 == 0 ? 0.0F : random.value()});
        }
        std::vector<float> want = logits;
        vocabulary_gradient_ref(want.data(), ld, rows, vocab, scale, inverse, sums.data(), grads.data());
        std::vector<Bf16> want16(static_cast<size_t>(rows * ldo));
        vocabulary_gradient_bf16_ref(logits.data(), ld, rows, vocab, scale, inverse, sums.data(),
                                     grads.data(), want16.data(), ldo);
        for_each_cuda_context([&](const cuda::Context& context) {
          OnDevice<float> d_logits(context, logits);
          OnDevice<VocabularySums> d_sums(context, sums);
          OnDevice<VocabularyGradientRow> d_grads(context, grads);
          OnDevice<Bf16> d_out(context, rows * ldo);
          vocabulary_gradient_bf16_cuda(context, d_logits.data(), ld, rows, vocab, scale, inverse,
                                        d_sums.data(), d_grads.data(), d_out.data(), ldo);
          EXPECT_TRUE(same_bits(want16, d_out.host())) << vocab << " T " << temperature << " ld " << ld;
          vocabulary_gradient_fp32_cuda(context, d_logits.data(), ld, rows, vocab, scale, inverse,
                                        d_sums.data(), d_grads.data());
          EXPECT_TRUE(same_bits(want, d_logits.host())) << vocab << " T " << temperature << " ld " << ld;
        });
      }
    }
  }
}

void compare_samples(const cuda::Context& context, const std::vector<float>& x, int64_t rows, int64_t vocab,
                     int64_t ld, const SamplingSettings& settings, uint64_t seed) {
  const std::vector<float> logits = strided(x, rows, vocab, ld);
  const auto want = lockstep::testing::reference_draws(logits, ld, rows, vocab, settings, seed);
  OnDevice<float> d_logits(context, logits);
  OnDevice<VocabularyDraw> d_draws(context, want.draws);
  OnDevice<int32_t> d_tokens(context, rows);
  OnDevice<float> d_log_probs(context, rows);
  FaultWord fault(context);
  vocabulary_sample_cuda(context, d_logits.data(), ld, rows, vocab, settings, d_draws.data(), d_tokens.data(),
                         d_log_probs.data(), fault.at(500));
  EXPECT_EQ(want.tokens, d_tokens.host()) << vocab << " T " << settings.temperature << " p " << settings.top_p
                                          << " k " << settings.top_k << " sampleable " << settings.sampleable;
  EXPECT_TRUE(same_bits(want.log_probs, d_log_probs.host()));
  EXPECT_EQ(want.fault(rows, 500), fault.value());
}

TEST(VocabularyCuda, SamplesAsReference) {
  LOCKSTEP_NEEDS_GPU();
  const cuda::Context context(0);
  TestRandom random(1);
  const int rounds = lockstep::testing::sanitized() ? 40 : 400;
  for (int round = 0; round < rounds; ++round) {
    const int64_t vocab = 1 + random.below(round % 10 == 0 ? 5000 : 400);
    const int64_t rows = 8;
    std::vector<float> x =
        special_logits(rows * vocab, random.next(), static_cast<float>(1 + random.below(12)));
    for (int64_t r = 0; r < rows; ++r) x[r * vocab + random.below(vocab)] = 1.0F;
    if (round % 7 == 0) x[random.below(rows * vocab)] = kInfinity;
    if (round % 11 == 0) std::fill(x.begin(), x.end(), 0.5F);
    SamplingSettings settings;
    const double temperatures[] = {0, 1.0, 0.3, 0.0009765625, 20};
    const double shares[] = {1.0, 0.9, 0.5, 1e-9, 0.999999, 0.9999999999};
    settings.temperature = temperatures[random.below(5)];
    settings.top_p = shares[random.below(6)];
    settings.top_k = random.below(2) == 0 ? -1 : 1 + random.below(vocab + 5);
    settings.sampleable = random.below(3) == 0 ? vocab : 1 + random.below(vocab);
    const int64_t ld = random.below(2) == 0 ? vocab : (vocab + 7) / 4 * 4;
    compare_samples(context, x, rows, vocab, ld, settings, random.next());
  }
}

// The recipe's vocabulary; logits spread, close together (bins overflow), and all equal.
TEST(VocabularyCuda, SamplesLargeVocabulary) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t kVocab = 151936;
  constexpr int64_t kRows = 3;
  for (const float spread : lockstep::testing::cases<float>({0.01F, 3.0F, 0.0F}, 1)) {
    const std::vector<float> x = TestRandom(7).values(kRows * kVocab, spread);
    for_each_cuda_context([&](const cuda::Context& context) {
      for (const SamplingSettings& settings : std::vector<SamplingSettings>{{1.0, 1.0, -1, 151665},
                                                                            {0.0, 1.0, -1, 151665},
                                                                            {0.7, 0.95, -1, 151665},
                                                                            {1.0, 1.0, 50, 151665},
                                                                            {1.0, 1.0, 70000, 151665},
                                                                            {1.0, 0.9, 20000, kVocab}}) {
        compare_samples(context, x, kRows, kVocab, kVocab, settings, 3);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
