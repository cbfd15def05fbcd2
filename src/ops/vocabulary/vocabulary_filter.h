// SPDX-License-Identifier: Apache-2.0
// Arguments that the two sampling kernels share.
#pragma once

#include "ops/vocabulary/vocabulary_cuda.h"

namespace lockstep::ops {

struct SampleArguments {
  const float* logits = nullptr;
  int64_t ld = 0;
  bool aligned = false;  // logits and ld, to 16 bytes
  int vocab = 0;
  int n_tiles = 0;
  int sampleable = 0;
  float scale = 0;
  bool greedy = false;
  int top_k = 0;  // 0: off
  bool has_top_p = false;
  uint64_t share = 0;  // top-p in multiples of 2^-32
  VocabularyTiles tiles;
  const VocabularyDraw* draws = nullptr;
  int32_t* tokens = nullptr;
  float* log_probs = nullptr;
  cuda::Fault fault;
};

// Sampling with top-k or top-p.
void sample_filtered_cuda(const cuda::Context& context, int64_t rows, const SampleArguments& arguments);

}  // namespace lockstep::ops
