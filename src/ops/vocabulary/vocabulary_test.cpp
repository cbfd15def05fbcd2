// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary/vocabulary.h"

#include <cmath>
#include <limits>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_same(const VocabularySums& want, const VocabularySums& got) {
  EXPECT_EQ(want.valid, got.valid);
  EXPECT_EQ(want.max_exponent, got.max_exponent);
  EXPECT_EQ(want.sum, got.sum);
  EXPECT_EQ(want.entropy_sum, got.entropy_sum);
}

std::vector<VocabularySums> sums_ref(const std::vector<float>& logits, int64_t rows, float scale) {
  std::vector<VocabularySums> sums(rows);
  const auto vocab = static_cast<int64_t>(logits.size()) / rows;
  vocabulary_sums_ref(logits.data(), vocab, rows, vocab, scale, sums.data());
  return sums;
}

// Logits with ties, both zeros, -inf and a few far away.
std::vector<float> special_logits(int64_t n, uint64_t seed, float scale) {
  TestRandom random(seed);
  std::vector<float> x = random.values(n, scale);
  for (int64_t i = 0; i < n; ++i) {
    switch (random.below(12)) {
      case 0:
        x[i] = -kInfinity;
        break;
      case 1:
        x[i] = std::rint(x[i]);
        break;
      case 2:
        x[i] = -0.0F;
        break;
      case 3:
        x[i] = 0.0F;
        break;
      case 4:
        x[i] *= 20.0F;
        break;
      case 5:
        x[i] = random.value() * 1e-41F;
        break;
      default:
        break;
    }
  }
  return x;
}

TEST(VocabularySums, EqualsReference) {
  for (const int64_t vocab : {1, 2, 5, 127, 128, 129, 300, 1000, 20000}) {
    for (const double temperature : {1.0, 0.0009765625, 0.7, 1024.0}) {
      const int64_t rows = vocab > 2000 ? 3 : 70;
      const std::vector<float> logits = special_logits(rows * vocab, vocab, 6.0F);
      const float scale = vocabulary_scale(temperature);
      const std::vector<VocabularySums> want = sums_ref(logits, rows, scale);
      for_each_context([&](const cpu::Context& context) {
        std::vector<VocabularySums> got(rows, VocabularySums{77, 77, 77, true});
        vocabulary_sums_cpu(context, logits.data(), vocab, rows, vocab, scale, got.data());
        for (int64_t r = 0; r < rows; ++r) expect_same(want[r], got[r]);
      });
    }
  }
}

TEST(VocabularySums, RefusesWhatHasNoSoftmax) {
  const float scale = vocabulary_scale(1.0);
  for (const int64_t vocab : {3, 128, 129, 400}) {
    for (const float bad : {kNan, -kNan, kInfinity, 1.5e6F, -1.5e6F, 3e38F, -3e38F}) {
      for (const int64_t at : {int64_t{0}, vocab / 2, vocab - 1}) {
        std::vector<float> logits(vocab, 1.0F);
        logits[at] = bad;
        EXPECT_FALSE(sums_ref(logits, 1, scale)[0].valid);
        for_each_context([&](const cpu::Context& context) {
          VocabularySums got{1, 1, 1, true};
          vocabulary_sums_cpu(context, logits.data(), vocab, 1, vocab, scale, &got);
          expect_same({}, got);
        });
      }
    }
    const std::vector<float> nothing(vocab, -kInfinity);
    EXPECT_FALSE(sums_ref(nothing, 1, scale)[0].valid);
    for_each_context([&](const cpu::Context& context) {
      VocabularySums got{1, 1, 1, true};
      vocabulary_sums_cpu(context, nothing.data(), vocab, 1, vocab, scale, &got);
      expect_same({}, got);
    });
  }
}

// Against the exact softmax of the scaled logits s (base 2, long double). The integers lose at most half of
// 2^-44 an id, 2^18 ids 2^-27 of a sum that is at least 0.7; the polynomial is within 2^-22 relative; the
// binary64 steps are far below. In nats that is less than 4.5e-7, and the result is rounded once more, by
// half a unit in its last place.
TEST(VocabularySums, LogProbAndEntropyAreAccurate) {
  for (const int64_t vocab : {3, 1000, 151936}) {
    for (const float spread : {1.0F, 3.0F, 12.0F}) {
      TestRandom random(vocab);
      const std::vector<float> logits = random.values(vocab, spread);
      const float scale = vocabulary_scale(1.0);
      const VocabularySums sums = sums_ref(logits, 1, scale)[0];
      ASSERT_TRUE(sums.valid);
      long double total = 0;
      for (const float x : logits) total += std::exp2(static_cast<long double>(x * scale));
      const long double ln2 = std::log(2.0L);
      long double entropy = 0;
      double worst = 0;
      for (const float x : logits) {
        const long double log_p = (static_cast<long double>(x * scale) - std::log2(total)) * ln2;
        entropy -= std::exp(log_p) * log_p;
        const float got = vocabulary_log_prob(x, scale, sums);
        const float last_place = std::abs(std::nextafter(got, kInfinity) - got);
        const double error =
            std::abs(static_cast<double>(got - log_p)) - 0.5 * static_cast<double>(last_place);
        worst = std::max(worst, error);
      }
      EXPECT_LT(worst, 4.5e-7) << vocab;
      EXPECT_NEAR(vocabulary_entropy(sums), static_cast<double>(entropy), 1e-6) << vocab;
    }
  }
}

// Log-probs at temperature 0.5 belong to temperature 0.5, not to 1.
TEST(VocabularySums, LogProbsAreOfTheTemperature) {
  const std::vector<float> logits = {2.0F, 1.0F, 0.0F};
  const float scale = vocabulary_scale(0.5);
  const VocabularySums sums = sums_ref(logits, 1, scale)[0];
  EXPECT_NEAR(vocabulary_log_prob(2.0F, scale, sums), -0.142932, 1e-6);
  EXPECT_NEAR(vocabulary_log_prob(1.0F, scale, sums), -2.142932, 1e-6);
  EXPECT_NEAR(vocabulary_log_prob(0.0F, scale, sums), -4.142932, 1e-6);
  EXPECT_EQ(vocabulary_log_prob(-kInfinity, scale, sums), -kInfinity);
  EXPECT_EQ(vocabulary_scale(0.0), vocabulary_scale(1.0));  // greedy: log-probs at temperature 1
}

}  // namespace
}  // namespace lockstep::ops
