// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary/vocabulary_bf16.h"

#include <algorithm>
#include <vector>

namespace lockstep::ops {

void vocabulary_gradient_bf16_ref(const float* logits, int64_t ld, int64_t rows, int64_t vocab, float scale,
                                  float inverse_temperature, const VocabularySums* sums,
                                  const VocabularyGradientRow* grads, numerics::Bf16* out, int64_t ldo) {
  std::vector<float> g(vocab);
  for (int64_t r = 0; r < rows; ++r) {
    std::copy(logits + r * ld, logits + r * ld + vocab, g.begin());
    vocabulary_gradient_ref(g.data(), vocab, 1, vocab, scale, inverse_temperature, sums + r, grads + r);
    for (int64_t i = 0; i < vocab; ++i) out[r * ldo + i] = numerics::float_to_bfloat16(g[i]);
    for (int64_t i = vocab; i < ldo; ++i) out[r * ldo + i] = 0;
  }
}

}  // namespace lockstep::ops
