// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary/vocabulary_bf16_cpu.h"

#include <cmath>
#include <limits>

#include "bf16_values.h"
#include "cpu_contexts.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_bf16.h"

namespace lockstep::ops {
namespace {

using namespace lockstep::testing;  // NOLINT: inputs and comparisons only
using numerics::Bf16;

// Logits with ties, both zeros, -inf and a few far away; the first of a row is finite.
std::vector<float> special_logits(int64_t rows, int64_t vocab, int64_t ld, uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> x = poisoned(rows * ld);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < vocab; ++i) {
      float& logit = x[static_cast<size_t>(r * ld + i)];
      logit = random.value() * 6.0F;
      const int64_t kind = random.below(14);
      if (kind == 0 && i > 0) logit = -std::numeric_limits<float>::infinity();
      if (kind == 1) logit = std::rint(logit);
      if (kind == 2) logit = -0.0F;
      if (kind == 3) logit *= 20.0F;
      if (kind == 4) logit *= 1e-41F;
    }
  }
  return x;
}

TEST(VocabularyBf16Cpu, GradientEqualsReference) {
  constexpr int64_t kRows = 12;
  for (const int64_t vocab : {1, 7, 128, 130, 1000, 5000}) {
    for (const double temperature : {1.0, 0.01, 3.0}) {
      const int64_t ld = vocab + 3, ldo = vocab + 1;
      const std::vector<float> logits = special_logits(kRows, vocab, ld, static_cast<uint64_t>(vocab));
      const float scale = vocabulary_scale(temperature);
      const auto inverse = static_cast<float>(1.0 / temperature);
      std::vector<VocabularySums> sums(kRows);
      vocabulary_sums_ref(logits.data(), ld, kRows, vocab, scale, sums.data());
      std::vector<VocabularyGradientRow> grads;
      TestRandom random(static_cast<uint64_t>(vocab) + 1);
      for (int64_t r = 0; r < kRows; ++r) {
        grads.push_back({static_cast<int32_t>(random.below(vocab)), r % 4 == 0 ? 0.0F : random.value(),
                         r % 3 == 0 ? 0.0F : random.value()});
      }
      std::vector<Bf16> want = poisoned_bf16(kRows * ldo);
      vocabulary_gradient_bf16_ref(logits.data(), ld, kRows, vocab, scale, inverse, sums.data(), grads.data(),
                                   want.data(), ldo);
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> scratch = logits;
        std::vector<Bf16> got = poisoned_bf16(kRows * ldo);
        vocabulary_gradient_bf16_cpu(context, scratch.data(), ld, kRows, vocab, scale, inverse, sums.data(),
                                     grads.data(), got.data(), ldo);
        EXPECT_TRUE(same_bits(want, got)) << vocab << " T " << temperature;
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
