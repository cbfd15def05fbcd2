// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "cpu_contexts.h"
#include "ops/vocabulary/vocabulary.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(VocabularyGradient, EqualsReference) {
  uint64_t seed = 1;
  for (const int64_t vocab : {1, 5, 127, 128, 129, 333, 40000}) {
    for (const float spread : {1.0F, 8.0F, 90.0F}) {
      for (const double temperature : {1.0, 0.6}) {
        constexpr int64_t kRows = 5;
        TestRandom random(seed++);
        std::vector<float> logits = random.values(kRows * vocab, spread);
        for (int64_t i = 0; i < kRows * vocab; i += 7) logits[i] = i % 2 == 0 ? -kInfinity : -0.0F;
        const float scale = vocabulary_scale(temperature);
        const float inverse_temperature = static_cast<float>(1.0 / temperature);
        std::vector<VocabularySums> sums(kRows);
        std::vector<VocabularyGradientRow> rows(kRows);
        for (int64_t r = 0; r < kRows; ++r) {
          rows[r] = {static_cast<int32_t>(random.below(vocab)), random.value(),
                     r % 2 == 0 ? 0.0F : random.value()};
          logits[r * vocab + rows[r].target] = 0.5F * spread;
        }
        rows[2].dlogp = rows[2].dent = 0;  // all +0
        rows[3].dlogp = 0;                 // entropy alone
        vocabulary_sums_ref(logits.data(), vocab, kRows, vocab, scale, sums.data());
        std::vector<float> want = logits;
        vocabulary_gradient_ref(want.data(), vocab, kRows, vocab, scale, inverse_temperature, sums.data(),
                                rows.data());
        for_each_context([&](const cpu::Context& context) {
          std::vector<float> got = logits;
          vocabulary_gradient_cpu(context, got.data(), vocab, kRows, vocab, scale, inverse_temperature,
                                  sums.data(), rows.data());
          EXPECT_TRUE(same_bits(want.data(), got.data(), kRows * vocab, vocab)) << vocab << " " << spread;
        });
        for (int64_t i = 0; i < vocab; ++i) EXPECT_EQ(lockstep::testing::bits_of(want[2 * vocab + i]), 0U);
      }
    }
  }
}

// Logits beyond `vocab` in a row (its stride is longer) stay as they are.
TEST(VocabularyGradient, LeavesThePaddingOfRowsAlone) {
  std::vector<float> logits(2 * 10, 0.25F);
  const float scale = vocabulary_scale(1.0);
  std::vector<VocabularySums> sums(2);
  const std::vector<VocabularyGradientRow> rows = {{0, 1.0F, 0.5F}, {6, 1.0F, 0.0F}};
  const cpu::Context context(2, cpu::Isa::kScalar);
  vocabulary_sums_cpu(context, logits.data(), 10, 2, 7, scale, sums.data());
  vocabulary_gradient_cpu(context, logits.data(), 10, 2, 7, scale, 1.0F, sums.data(), rows.data());
  for (const int64_t row : {0, 1}) {
    for (int64_t i = 0; i < 7; ++i) EXPECT_NE(logits[row * 10 + i], 0.25F);
    for (int64_t i = 7; i < 10; ++i) EXPECT_EQ(logits[row * 10 + i], 0.25F);
  }
}

// Outside check, by central differences of exact log-prob and entropy in binary64 (step 1e-4: truncation
// 1e-8). The gradients are at most about 1 and carry a handful of binary32 roundings: 2e-6.
TEST(VocabularyGradient, EqualsFiniteDifferences) {
  const double temperature = 0.7;
  const int64_t vocab = 40;
  const std::vector<float> logits = TestRandom(5).values(vocab, 3.0F);
  const VocabularyGradientRow row = {11, 0.8F, -0.3F};
  const auto loss = [&](const std::vector<double>& x) {
    double sum = 0;
    for (const double l : x) sum += std::exp(l / temperature);
    double entropy = 0;
    for (const double l : x) {
      const double log_p = l / temperature - std::log(sum);
      entropy -= std::exp(log_p) * log_p;
    }
    return static_cast<double>(row.dlogp) * (x[row.target] / temperature - std::log(sum)) +
           static_cast<double>(row.dent) * entropy;
  };
  const float scale = vocabulary_scale(temperature);
  VocabularySums sums;
  vocabulary_sums_ref(logits.data(), vocab, 1, vocab, scale, &sums);
  std::vector<float> got = logits;
  vocabulary_gradient_ref(got.data(), vocab, 1, vocab, scale, static_cast<float>(1.0 / temperature), &sums,
                          &row);
  std::vector<double> x(logits.begin(), logits.end());
  for (int64_t i = 0; i < vocab; ++i) {
    const double saved = x[i];
    x[i] = saved + 1e-4;
    const double above = loss(x);
    x[i] = saved - 1e-4;
    const double below = loss(x);
    x[i] = saved;
    EXPECT_NEAR(got[i], (above - below) / 2e-4, 2e-6) << i;
  }
}

}  // namespace
}  // namespace lockstep::ops
