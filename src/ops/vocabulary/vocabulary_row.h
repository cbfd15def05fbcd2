// SPDX-License-Identifier: Apache-2.0
// Values of one row that reference and CPU path compute alike, and the kernels of the CPU path.
#pragma once

#include <cstdint>

#include "numerics/constants.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_formulas.h"

namespace lockstep::ops {

// One tile of 128 logits. Weights are relative to 2^max_exponent.
struct VocabularyTile {
  int32_t max_exponent;  // M_j
  bool any;              // a logit other than -inf; false: the tile is skipped
  uint64_t sum;          // W_j
  int64_t entropy_sum;   // A_j
};

struct VocabularyKernels {
  // Tiles of n logits; false: a logit is out of range.
  bool (*tiles)(const float* logits, int64_t n, float scale, VocabularyTile* tiles);
  // Weights of one tile's count <= 128 logits, in range, relative to 2^*max_exponent; false: all are -inf.
  bool (*weights)(const float* logits, int64_t count, float scale, int32_t* max_exponent, uint64_t* w);
  // Gradient of n logits in place, without the target's own term.
  void (*gradient)(float* logits, int64_t n, const GradientFactors& factors);
};
VocabularyKernels vocabulary_kernels_portable();
// Null where the compiler's target lacks the instructions.
VocabularyKernels vocabulary_kernels_avx2();
VocabularyKernels vocabulary_kernels_avx512();
VocabularyKernels vocabulary_kernels(cpu::Isa isa);

// sample_token_cpu with the kernels of one instruction set.
int32_t sample_token(const VocabularyKernels& kernels, const float* logits, int64_t vocab,
                     const SamplingSettings& settings, const VocabularySums& sums, uint64_t random_bits);

}  // namespace lockstep::ops
