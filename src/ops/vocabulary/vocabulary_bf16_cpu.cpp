// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary/vocabulary_bf16_cpu.h"

namespace lockstep::ops {

void vocabulary_gradient_bf16_cpu(const cpu::Context& context, float* logits, int64_t ld, int64_t rows,
                                  int64_t vocab, float scale, float inverse_temperature,
                                  const VocabularySums* sums, const VocabularyGradientRow* grads,
                                  numerics::Bf16* out, int64_t ldo) {
  vocabulary_gradient_cpu(context, logits, ld, rows, vocab, scale, inverse_temperature, sums, grads);
  context.parallel_for(rows, [&](int64_t r) {
    for (int64_t i = 0; i < vocab; ++i) out[r * ldo + i] = numerics::float_to_bfloat16(logits[r * ld + i]);
    for (int64_t i = vocab; i < ldo; ++i) out[r * ldo + i] = 0;
  });
}

}  // namespace lockstep::ops
