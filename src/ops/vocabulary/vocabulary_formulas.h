// SPDX-License-Identifier: Apache-2.0
// Functions of one row's sums, one text for host and device (docs/numerics.md, Vocabulary).
#pragma once

#include <cstdint>

#include "numerics/constants.h"
#include "numerics/math.h"
#include "ops/vocabulary/vocabulary_types.h"

namespace lockstep::ops {

inline constexpr double kVocabularyLn2 = 0x1.62e42fefa39efp-1;

// x >> d; 0 from 64 on.
LOCKSTEP_HD uint64_t shifted(uint64_t x, int64_t d) {
  return d >= 64 ? 0 : x >> d;
}
// Arithmetic; 0 from 64 on.
LOCKSTEP_HD int64_t shifted(int64_t x, int64_t d) {
  return d >= 64 ? 0 : x >> d;
}

// log2 of the sum itself (S counts multiples of 2^-44).
LOCKSTEP_HD double vocabulary_log2_sum(const VocabularySums& sums) {
  return numerics::log2(static_cast<double>(sums.sum)) - numerics::kWeightFractionBits;
}

LOCKSTEP_HD float vocabulary_log_prob_of(float logit, float scale, const VocabularySums& sums) {
  const double s = logit * scale;
  return static_cast<float>(kVocabularyLn2 * ((s - sums.max_exponent) - vocabulary_log2_sum(sums)));
}

LOCKSTEP_HD double vocabulary_entropy_of(const VocabularySums& sums) {
  return kVocabularyLn2 *
         (vocabulary_log2_sum(sums) + static_cast<double>(sums.entropy_sum) / static_cast<double>(sums.sum));
}

// Of the gradient of a row's logits (binary32; docs/numerics.md).
struct GradientFactors {
  float scale, max, inverse_sum;
  float c;  // dlogp / T
  bool entropic;
  float ce;        // dent / T
  float log2_sum;  // log2 S - 44
  float entropy, ln2;
};
LOCKSTEP_HD GradientFactors gradient_factors(float scale, float inverse_temperature,
                                             const VocabularySums& sums, const VocabularyGradientRow& row) {
  GradientFactors f;
  f.scale = scale;
  f.max = static_cast<float>(sums.max_exponent);
  f.inverse_sum = static_cast<float>(0x1p44 / static_cast<double>(sums.sum));
  f.c = row.dlogp * inverse_temperature;
  f.entropic = row.dent != 0;
  f.ce = row.dent * inverse_temperature;
  f.log2_sum = static_cast<float>(vocabulary_log2_sum(sums));
  f.entropy = f.entropic ? static_cast<float>(vocabulary_entropy_of(sums)) : 0.0F;
  f.ln2 = static_cast<float>(kVocabularyLn2);
  return f;
}

// c * ((S - m)/S): the gradient of the target's own logit, m = w >> (M - M_j).
LOCKSTEP_HD float target_gradient(float c, uint64_t sum, uint64_t mass) {
  return c * static_cast<float>(static_cast<double>(sum - mass) / static_cast<double>(sum));
}

}  // namespace lockstep::ops
