// SPDX-License-Identifier: Apache-2.0
// The vocabulary on the GPU: the bits of vocabulary.h and vocabulary_bf16.h. Pointers are device pointers;
// logits are binary32 [rows, vocab] with row stride ld (fastest: a multiple of 4, 16-byte aligned).
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"
#include "ops/vocabulary/vocabulary_types.h"

namespace lockstep::ops {

// Sums of the tiles of 128 ids (numerics/vocabulary_tile.cuh), each array [rows, tiles]: made from logits or
// by the epilogue of their product.
struct VocabularyTiles {
  int32_t* max_exponent = nullptr;
  uint64_t* sum = nullptr;
  int64_t* entropy_sum = nullptr;  // null: not computed, and entropy sums of rows are 0
};
int64_t vocabulary_tile_count(int64_t vocab);

void vocabulary_tiles_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                           int64_t vocab, float scale, const VocabularyTiles& tiles);
void vocabulary_sums_from_tiles_cuda(const cuda::Context& context, const VocabularyTiles& tiles, int64_t rows,
                                     int64_t vocab, VocabularySums* sums);
// Both; the tiles in scratch memory.
void vocabulary_sums_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                          int64_t vocab, float scale, VocabularySums* sums);

// log_probs[r] = vocabulary_log_prob of targets[r], entropies[r] = vocabulary_entropy (null: not wanted). A
// row without valid sums is reported to fault with its number as detail and gets zeros.
void vocabulary_log_probs_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                               float scale, const VocabularySums* sums, const int32_t* targets,
                               float* log_probs, double* entropies, const cuda::Fault& fault);

// Gradient of the logits, of rows with valid sums: in place, or as bfloat16 with row stride ldo >= vocab,
// columns [vocab, ldo) +0.
void vocabulary_gradient_fp32_cuda(const cuda::Context& context, float* logits, int64_t ld, int64_t rows,
                                   int64_t vocab, float scale, float inverse_temperature,
                                   const VocabularySums* sums, const VocabularyGradientRow* grads);
void vocabulary_gradient_bf16_cuda(const cuda::Context& context, const float* logits, int64_t ld,
                                   int64_t rows, int64_t vocab, float scale, float inverse_temperature,
                                   const VocabularySums* sums, const VocabularyGradientRow* grads,
                                   numerics::Bf16* out, int64_t ldo);

// Arguments of numerics::draw for one row's token.
struct VocabularyDraw {
  uint64_t seed = 0;
  uint64_t ordinal = 0;
  uint32_t sample = 0;
  uint32_t position = 0;
  uint32_t purpose = 0;  // a numerics::Purpose
};

// tokens[r] = sample_token of row r for draws[r]; log_probs[r] = vocabulary_log_prob of it at the settings'
// temperature. The settings have passed check_sampling. A row that has no softmax is reported to fault with
// its number as detail and gets token 0, log-prob 0.
void vocabulary_sample_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                            int64_t vocab, const SamplingSettings& settings, const VocabularyDraw* draws,
                            int32_t* tokens, float* log_probs, const cuda::Fault& fault);
// Tiles without entropy sums in the context's scratch memory, for the next function.
VocabularyTiles vocabulary_scratch_tiles(const cuda::Context& context, int64_t rows, int64_t vocab);
// The same from tiles at the scale of the settings' temperature; their entropy sums are not read.
void vocabulary_sample_from_tiles_cuda(const cuda::Context& context, const float* logits, int64_t ld,
                                       int64_t rows, int64_t vocab, const VocabularyTiles& tiles,
                                       const SamplingSettings& settings, const VocabularyDraw* draws,
                                       int32_t* tokens, float* log_probs, const cuda::Fault& fault);

}  // namespace lockstep::ops
