// SPDX-License-Identifier: Apache-2.0
// What reference and CPU path share: functions of one row's sums, and the check of sampling options.
#include "ops/vocabulary/vocabulary.h"

#include "numerics/constants.h"
#include "ops/vocabulary/vocabulary_formulas.h"

namespace lockstep::ops {
namespace {

constexpr double kLog2E = 0x1.71547652b82fep+0;

}  // namespace

float vocabulary_scale(double temperature) {
  return static_cast<float>(kLog2E / (temperature == 0 ? 1.0 : temperature));
}

float vocabulary_log_prob(float logit, float scale, const VocabularySums& sums) {
  return vocabulary_log_prob_of(logit, scale, sums);
}

double vocabulary_entropy(const VocabularySums& sums) {
  return vocabulary_entropy_of(sums);
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
