// SPDX-License-Identifier: Apache-2.0
// What vocabulary operations take and return, for host and device code.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// scale = binary32(log2(e)/T); T = 0 (greedy) uses T = 1. 2^-10 <= T <= 2^10.
float vocabulary_scale(double temperature);

// One row's sums over the whole vocabulary.
struct VocabularySums {
  int32_t max_exponent = 0;  // M
  uint64_t sum = 0;          // S, in multiples of 2^-44
  int64_t entropy_sum = 0;   // E, in multiples of 2^-44 (see docs): entropy = ln 2 * (log2 S - 44 + E/S)
  bool valid = false;        // false: a logit is NaN or +inf, or all are -inf, or |s| >= 2^21
};

// Of one row, for the gradient of its logits.
struct VocabularyGradientRow {
  int32_t target = 0;
  float dlogp = 0;
  float dent = 0;
};

struct SamplingSettings {
  double temperature = 1.0;  // 0: greedy (largest logit, then smallest id)
  double top_p = 1.0;        // (0, 1]
  int64_t top_k = -1;        // -1 or >= vocab: off
  int64_t sampleable = 0;    // ids at or above it are never drawn (padded vocabulary); <= vocab
};

}  // namespace lockstep::ops
