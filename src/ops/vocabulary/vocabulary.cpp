// SPDX-License-Identifier: Apache-2.0
// What reference and CPU path share: functions of one row's sums, and the check of sampling options.
#include "ops/vocabulary/vocabulary.h"

#include "numerics/constants.h"
#include "numerics/math.h"
#include "ops/vocabulary/vocabulary_row.h"

namespace lockstep::ops {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// log2 of the sum itself (S counts multiples of 2^-44).
double log2_sum(const VocabularySums& sums) {
  return numerics::log2(static_cast<double>(sums.sum)) - numerics::kWeightFractionBits;
}

}  // namespace

float vocabulary_scale(double temperature) {
  return static_cast<float>(kLog2E / (temperature == 0 ? 1.0 : temperature));
}

float vocabulary_log_prob(float logit, float scale, const VocabularySums& sums) {
  const double s = logit * scale;
  return static_cast<float>(kLn2 * ((s - sums.max_exponent) - log2_sum(sums)));
}

double vocabulary_entropy(const VocabularySums& sums) {
  return kLn2 * (log2_sum(sums) + static_cast<double>(sums.entropy_sum) / static_cast<double>(sums.sum));
}

GradientFactors gradient_factors(float scale, float inverse_temperature, const VocabularySums& sums,
                                 const VocabularyGradientRow& row) {
  GradientFactors f;
  f.scale = scale;
  f.max = static_cast<float>(sums.max_exponent);
  f.inverse_sum = static_cast<float>(0x1p44 / static_cast<double>(sums.sum));
  f.c = row.dlogp * inverse_temperature;
  f.entropic = row.dent != 0;
  f.ce = row.dent * inverse_temperature;
  f.log2_sum = static_cast<float>(log2_sum(sums));
  f.entropy = f.entropic ? static_cast<float>(vocabulary_entropy(sums)) : 0.0F;
  f.ln2 = static_cast<float>(kLn2);
  return f;
}

float target_gradient(float c, uint64_t sum, uint64_t mass) {
  return c * static_cast<float>(static_cast<double>(sum - mass) / static_cast<double>(sum));
}

Status check_sampling(const SamplingSettings& settings, int64_t vocab) {
  const double t = settings.temperature;
  if (!(t == 0 || (t >= 0x1p-10 && t <= 0x1p10)))
    return invalid("temperature {}: use 0 (greedy) or a value from 2^-10 (0.0009765625) to 1024", t);
  if (!(settings.top_p > 0 && settings.top_p <= 1))
    return invalid(
        "top-p {}: use a value above 0 and at most 1 (1 keeps every token; temperature 0 is greedy)",
        settings.top_p);
  if (settings.top_k != -1 && settings.top_k < 1)
    return invalid("top-k {}: use -1 (off) or a count from 1 up", settings.top_k);
  if (vocab < 1 || vocab > numerics::kMaxVocab)
    return invalid("vocabulary of {} tokens: from 1 to {} are supported", vocab, numerics::kMaxVocab);
  if (settings.sampleable < 1 || settings.sampleable > vocab)
    return invalid("sampleable tokens {}: from 1 to the vocabulary's {}", settings.sampleable, vocab);
  return ok_status();
}

}  // namespace lockstep::ops
