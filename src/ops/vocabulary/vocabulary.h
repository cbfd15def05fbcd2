// SPDX-License-Identifier: Apache-2.0
// Softmax over the vocabulary, log-probabilities, entropy, the gradient of the logits, and sampling, all
// through integer weights (docs/numerics.md, Vocabulary). Logits are binary32 [rows, vocab] with row stride
// ld.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "device/cpu/context.h"
#include "ops/vocabulary/vocabulary_types.h"

namespace lockstep::ops {

void vocabulary_sums_ref(const float* logits, int64_t ld, int64_t rows, int64_t vocab, float scale,
                         VocabularySums* sums);
void vocabulary_sums_cpu(const cpu::Context& context, const float* logits, int64_t ld, int64_t rows,
                         int64_t vocab, float scale, VocabularySums* sums);

// binary32(ln 2 * ((s_t - M) - (log2 S - 44))), inside in binary64. sums must be valid.
float vocabulary_log_prob(float logit, float scale, const VocabularySums& sums);
// ln 2 * ((log2 S - 44) + E/S) in binary64 (nats).
double vocabulary_entropy(const VocabularySums& sums);

// Gradient of a row's logits, in place over them. dlogp = dLoss/d(log-prob of `target`), dent =
// dLoss/d(entropy) (0: no entropy term), inverse_temperature = binary32(1/T) by a division. Expression in
// docs/numerics.md.
void vocabulary_gradient_ref(float* logits, int64_t ld, int64_t rows, int64_t vocab, float scale,
                             float inverse_temperature, const VocabularySums* sums,
                             const VocabularyGradientRow* grads);
void vocabulary_gradient_cpu(const cpu::Context& context, float* logits, int64_t ld, int64_t rows,
                             int64_t vocab, float scale, float inverse_temperature,
                             const VocabularySums* sums, const VocabularyGradientRow* grads);

// Errors (kInvalid) name the option and the allowed range.
Status check_sampling(const SamplingSettings& settings, int64_t vocab);

// The token of one row for 64 random bits. Pure function of (logits, settings, bits).
int32_t sample_token_ref(const float* logits, int64_t vocab, const SamplingSettings& settings,
                         uint64_t random_bits);
// The same, given the row's valid sums at this temperature's scale.
int32_t sample_token_cpu(const float* logits, int64_t vocab, const SamplingSettings& settings,
                         const VocabularySums& sums, uint64_t random_bits);

}  // namespace lockstep::ops
