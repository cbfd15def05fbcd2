// SPDX-License-Identifier: Apache-2.0
// The vocabulary's gradient in profile bf16 on a CPU: the bits of vocabulary_bf16.h.
#pragma once

#include "ops/vocabulary/vocabulary_bf16.h"

namespace lockstep::ops {

// The logits are overwritten by the gradient before its rounding.
void vocabulary_gradient_bf16_cpu(const cpu::Context& context, float* logits, int64_t ld, int64_t rows,
                                  int64_t vocab, float scale, float inverse_temperature,
                                  const VocabularySums* sums, const VocabularyGradientRow* grads,
                                  numerics::Bf16* out, int64_t ldo);

}  // namespace lockstep::ops
