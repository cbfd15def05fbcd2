// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <set>

#include "cpu_contexts.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_row.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::TestRandom;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One draw, by the reference and by every kernel of this machine, which must agree.
int32_t draw(const std::vector<float>& logits, const SamplingSettings& settings, uint64_t bits) {
  const auto vocab = static_cast<int64_t>(logits.size());
  EXPECT_TRUE(check_sampling(settings, vocab).ok()) << check_sampling(settings, vocab).message();
  VocabularySums sums;
  vocabulary_sums_ref(logits.data(), vocab, 1, vocab, vocabulary_scale(settings.temperature), &sums);
  EXPECT_TRUE(sums.valid);
  const int32_t want = sample_token_ref(logits.data(), vocab, settings, bits);
  EXPECT_EQ(want, sample_token_cpu(logits.data(), vocab, settings, sums, bits));
  for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (!cpu::isa_available(isa)) continue;
    EXPECT_EQ(want, sample_token(vocabulary_kernels(isa), logits.data(), vocab, settings, sums, bits))
        << cpu::isa_name(isa);
  }
  return want;
}

std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingSettings& settings, int draws) {
  TestRandom random(99);
  std::set<int32_t> ids;
  for (int i = 0; i < draws; ++i) ids.insert(draw(logits, settings, random.next()));
  return ids;
}

std::vector<float> logs(const std::vector<double>& p) {
  std::vector<float> out;
  for (const double x : p) out.push_back(static_cast<float>(std::log(x)));
  return out;
}

TEST(SampleToken, EqualsReferenceForRandomSettings) {
  TestRandom random(1);
  for (int round = 0; round < 300; ++round) {
    const int64_t vocab = 1 + random.below(round % 10 == 0 ? 5000 : 400);
    std::vector<float> logits = random.values(vocab, static_cast<float>(1 + random.below(12)));
    for (float& x : logits) {
      const int64_t kind = random.below(8);
      if (kind == 0) x = std::rint(x);
      if (kind == 1) x = -kInfinity;
      if (kind == 2) x = -0.0F;
    }
    logits[random.below(vocab)] = 1.0F;  // not all -inf
    SamplingSettings settings;
    const double temperatures[] = {0, 1.0, 0.3, 0.0009765625, 20};
    const double shares[] = {1.0, 0.9, 0.5, 1e-9, 0.999999};
    settings.temperature = temperatures[random.below(5)];
    settings.top_p = shares[random.below(5)];
    settings.top_k = random.below(2) == 0 ? -1 : 1 + random.below(vocab + 5);
    settings.sampleable = 1 + random.below(vocab);
    for (const uint64_t bits : {uint64_t{0}, ~uint64_t{0}, random.next(), random.next(), random.next()}) {
      EXPECT_LT(draw(logits, settings, bits), settings.sampleable);
    }
  }
}

// The frequencies are those of the softmax: chi-squared with 4 degrees of freedom, 0.1 % point 18.5; the
// bits are fixed, so this cannot flake.
TEST(SampleToken, FrequenciesAreTheProbabilities) {
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.08, 0.02};
  const std::vector<float> logits = logs(p);
  TestRandom random(2);
  std::vector<int> count(5);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++count[draw(logits, {1.0, 1.0, -1, 5}, random.next())];
  double chi_squared = 0;
  for (int i = 0; i < 5; ++i) chi_squared += std::pow(count[i] - kDraws * p[i], 2) / (kDraws * p[i]);
  EXPECT_LT(chi_squared, 18.5);
}

// Very small temperatures are refused with the allowed range; the smallest allowed one acts like greedy when
// the best leads by 0.05, with log-prob 0 (exp(-0.05 * 1024) = 6e-23).
TEST(SampleToken, SmallTemperatures) {
  std::vector<float> logits = TestRandom(3).values(2000, 1.0F);
  logits[777] = 2.5F;
  logits[778] = 2.45F;
  for (const double t : {1e-2, 1e-3, 0.0009765625}) {
    EXPECT_EQ(drawn(logits, {t, 1.0, -1, 2000}, 50), std::set<int32_t>({777})) << t;
    const float scale = vocabulary_scale(t);
    VocabularySums sums;
    vocabulary_sums_ref(logits.data(), 2000, 1, 2000, scale, &sums);
    EXPECT_NEAR(vocabulary_log_prob(2.5F, scale, sums), 0.0, t == 1e-2 ? 0.01 : 1e-6);
  }
  EXPECT_EQ(drawn(logits, {0.0, 1.0, -1, 2000}, 3), std::set<int32_t>({777}));
  for (const double t : {1e-4, 1e-5, 1e-6, 1e-8, 1e-30, 5e-324, -1.0, 1025.0, std::nan("")}) {
    const Status status = check_sampling({t, 1.0, -1, 2000}, 2000);
    EXPECT_EQ(status.code(), StatusCode::kInvalid) << t;
    EXPECT_NE(status.message().find("temperature"), std::string::npos);
    EXPECT_NE(status.message().find("0.0009765625"), std::string::npos);
  }
}

// Top-p keeps the token that crosses the limit.
TEST(SampleToken, TopPKeepsTheCrossingToken) {
  const auto ids = [](int n) {
    std::set<int32_t> out;
    for (int i = 0; i < n; ++i) out.insert(i);
    return out;
  };
  EXPECT_EQ(drawn(logs({.5, .3, .15, .05}), {1.0, 0.6, -1, 4}, 4000), ids(2));
  EXPECT_EQ(drawn(logs({.5, .3, .15, .05}), {1.0, 0.85, -1, 4}, 4000), ids(3));
  EXPECT_EQ(drawn(logs({.5, .41, .09}), {1.0, 0.9, -1, 3}, 4000), ids(2));
  EXPECT_EQ(drawn(logs({.4, .3, .2, .1}), {1.0, 0.8, -1, 4}, 4000), ids(3));
}

// A tiny top-p keeps the most likely token; 0 is an error.
TEST(SampleToken, TinyTopPKeepsTheMostLikely) {
  std::vector<float> logits = TestRandom(4).values(150000, 1.0F);
  logits[123456] = 9.0F;  // about 4 %
  for (const double p : {1e-3, 1e-7, 1e-8, 1e-30}) {
    EXPECT_EQ(drawn(logits, {1.0, p, -1, 150000}, 3), std::set<int32_t>({123456})) << p;
  }
  for (const double p : {0.0, -0.5, 1.5, std::nan("")}) {
    const Status status = check_sampling({1.0, p, -1, 10}, 10);
    EXPECT_EQ(status.code(), StatusCode::kInvalid);
    EXPECT_NE(status.message().find("top-p"), std::string::npos);
  }
}

// Equal logits at the k-th place: the smaller id stays.
TEST(SampleToken, TopKBreaksTiesById) {
  EXPECT_EQ(drawn({2, 1, 1, 1}, {1.0, 1.0, 2, 4}, 4000), std::set<int32_t>({0, 1}));
  EXPECT_EQ(drawn({0.0F, -0.0F, 0.0F, -1}, {1.0, 1.0, 2, 4}, 400), std::set<int32_t>({0, 1}));
  EXPECT_EQ(drawn({1, 3, 3, 2}, {1.0, 1.0, 1, 4}, 100), std::set<int32_t>({1}));
  for (const int64_t k : {0, -2}) EXPECT_FALSE(check_sampling({1.0, 1.0, k, 4}, 4).ok());
  EXPECT_TRUE(check_sampling({1.0, 1.0, 100, 4}, 4).ok());
}

// Padded ids are never drawn, whatever their logits; they count in the softmax all the same.
TEST(SampleToken, PaddedVocabularyIsNeverDrawn) {
  std::vector<float> logits = TestRandom(5).values(400, 1.0F);
  for (int i = 350; i < 400; ++i) logits[i] = 30.0F;
  for (const SamplingSettings& settings : std::vector<SamplingSettings>{{1.0, 1.0, -1, 350},
                                                                        {0.0, 1.0, -1, 350},
                                                                        {1.0, 0.5, -1, 350},
                                                                        {1.0, 1.0, 5, 350},
                                                                        {1.0, 0.9, 40, 350}}) {
    for (const int32_t id : drawn(logits, settings, 200)) EXPECT_LT(id, 350);
  }
  // Padded ids so far ahead that nothing else weighs anything: still the best sampleable one.
  for (int i = 350; i < 400; ++i) logits[i] = 1000.0F;
  logits[42] = 5.0F;
  EXPECT_EQ(drawn(logits, {1.0, 1.0, -1, 350}, 5), std::set<int32_t>({42}));
  EXPECT_FALSE(check_sampling({1.0, 1.0, -1, 401}, 400).ok());
  EXPECT_FALSE(check_sampling({1.0, 1.0, -1, 0}, 400).ok());
}

}  // namespace
}  // namespace lockstep::ops
