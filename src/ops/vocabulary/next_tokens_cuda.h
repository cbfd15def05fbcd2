// SPDX-License-Identifier: Apache-2.0
// The rows of a decode step on the GPU, moved on by the tokens that were drawn for them: the next step of the
// same rows begins without the host. Pointers are device pointers.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "ops/vocabulary/vocabulary_cuda.h"

namespace lockstep::ops {

// Arrays [rows]. A row whose id is below 0 is padding and stays what it is.
struct NextTokenRows {
  int32_t* ids = nullptr;
  int32_t* positions = nullptr;
  int32_t* run_positions = nullptr;  // the same, as attention over runs reads them
  int32_t* keys = nullptr;           // position + 1
  VocabularyDraw* draws = nullptr;   // of the token that is drawn next
};
struct DrawnRow {
  int32_t token = 0;
  float log_prob = 0;
};
// What is kept of the steps for the host.
struct TokenHistory {
  int32_t* steps = nullptr;                         // done so far
  DrawnRow* rows = nullptr;                         // [steps][rows]; of padding: zeros
  unsigned long long* faults = nullptr;             // [steps][2], as they stood after the step
  const unsigned long long* fault_words = nullptr;  // [2]
};

// Row r of the step got tokens[r]: keeps it, and makes it the input at the next position.
void next_tokens_cuda(const cuda::Context& context, const int32_t* tokens, const float* log_probs,
                      int64_t rows, const NextTokenRows& next, const TokenHistory& history);

}  // namespace lockstep::ops
