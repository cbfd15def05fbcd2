// SPDX-License-Identifier: Apache-2.0
// The vocabulary in profile bf16: logits, sums and sampling are those of vocabulary.h (binary32); only the
// gradient of the logits is rounded.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"
#include "ops/vocabulary/vocabulary.h"

namespace lockstep::ops {

// out[r, i] = bf16(gradient of vocabulary.h), row stride ldo >= vocab; columns [vocab, ldo) become +0 (they
// are the zero padding of the products that follow).
void vocabulary_gradient_bf16_ref(const float* logits, int64_t ld, int64_t rows, int64_t vocab, float scale,
                                  float inverse_temperature, const VocabularySums* sums,
                                  const VocabularyGradientRow* grads, numerics::Bf16* out, int64_t ldo);

}  // namespace lockstep::ops
