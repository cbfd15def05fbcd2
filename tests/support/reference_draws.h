// SPDX-License-Identifier: Apache-2.0
// What sampling on the GPU has to give: the definitions, row by row.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/cuda/context.h"
#include "numerics/philox.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_cuda.h"

namespace lockstep::testing {

struct ReferenceDraws {
  std::vector<ops::VocabularyDraw> draws;  // different in every row
  std::vector<int32_t> tokens;             // 0 where there is no softmax
  std::vector<float> log_probs;            // 0 where there is no softmax
  std::vector<bool> valid;

  // Of rows [0, rows): the fault with `key`, as the first row without a softmax reports it.
  unsigned long long fault(int64_t rows, unsigned long long key) const {
    for (int64_t r = 0; r < rows; ++r)
      if (!valid[static_cast<size_t>(r)]) return key + static_cast<unsigned long long>(r);
    return cuda::kNoFault;
  }
};

inline ReferenceDraws reference_draws(const std::vector<float>& logits, int64_t ld, int64_t rows,
                                      int64_t vocab, const ops::SamplingSettings& settings, uint64_t seed) {
  constexpr int64_t kSlowDefinition = 5000;  // ids up to which sample_token_ref is asked, too
  const float scale = ops::vocabulary_scale(settings.temperature);
  ReferenceDraws out;
  for (int64_t r = 0; r < rows; ++r) {
    const ops::VocabularyDraw d = {seed, static_cast<uint64_t>(r * 13 + 5), static_cast<uint32_t>(r % 7),
                                   static_cast<uint32_t>(r * 3), static_cast<uint32_t>(r % 2)};
    out.draws.push_back(d);
    const float* row = logits.data() + r * ld;
    ops::VocabularySums sums;
    ops::vocabulary_sums_ref(row, ld, 1, vocab, scale, &sums);
    out.valid.push_back(sums.valid);
    if (!sums.valid) {
      out.tokens.push_back(0);
      out.log_probs.push_back(0.0F);
      continue;
    }
    const uint64_t bits =
        numerics::draw(d.seed, static_cast<numerics::Purpose>(d.purpose), d.ordinal, d.sample, d.position);
    const int32_t token = ops::sample_token_cpu(row, vocab, settings, sums, bits);
    if (vocab <= kSlowDefinition) {
      EXPECT_EQ(token, ops::sample_token_ref(row, vocab, settings, bits));
    }
    out.tokens.push_back(token);
    out.log_probs.push_back(ops::vocabulary_log_prob(row[token], scale, sums));
  }
  return out;
}

}  // namespace lockstep::testing
