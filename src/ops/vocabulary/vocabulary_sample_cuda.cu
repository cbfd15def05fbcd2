// SPDX-License-Identifier: Apache-2.0
// Sampling: a block a row, from the sums of tiles. Without filters only the tile of the token is read again.
#include <cmath>

#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/vocabulary/vocabulary_draw.cuh"
#include "ops/vocabulary/vocabulary_filter.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) draw_rows(SampleArguments a) {
  extern __shared__ uint64_t masses[];  // [n_tiles]
  __shared__ BlockMemory memory;
  __shared__ Drawn drawn;
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int64_t row_number = blockIdx.x;
  SampledRow row = {a.logits + row_number * a.ld,
                    a.aligned,
                    a.vocab,
                    a.sampleable,
                    a.scale,
                    row_tiles(a.tiles, row_number, a.n_tiles),
                    {}};
  row.tiles.entropy_sum = nullptr;
  row.sums = row_sums(row.tiles, &memory, masses);
  if (!row.sums.valid) {
    if (threadIdx.x != 0) return;
    cuda::report(a.fault, static_cast<unsigned long long>(row_number));
    a.tokens[row_number] = 0;
    a.log_probs[row_number] = 0.0F;
    return;
  }
  int token = -1;
  if (!a.greedy) {
    const auto keep = [](int, float) { return true; };  // for_tile leaves out what may not be drawn
    const int full = a.sampleable / kVocabularyTile;
    for (int j = full + static_cast<int>(threadIdx.x); j < a.n_tiles; j += kThreads) masses[j] = 0;
    __syncthreads();
    if (full * kVocabularyTile < a.sampleable && threadIdx.x < 32) {
      const uint64_t sum = kept_weight(row, full, keep);
      const int64_t d = sum != 0 ? row.sums.max_exponent - row.tiles.max_exponent[full] : 0;
      if (threadIdx.x == 0) masses[full] = shifted(sum, d);
    }
    __syncthreads();
    token = draw_token(row, masses, bits_of_draw(a.draws[row_number]), keep, &memory, &drawn);
  }
  if (token < 0) token = first_in_order(row, &memory);
  if (threadIdx.x == 0) {
    a.tokens[row_number] = token;
    a.log_probs[row_number] = vocabulary_log_prob_of(row.logits[token], a.scale, row.sums);
  }
}

}  // namespace

void vocabulary_sample_from_tiles_cuda(const cuda::Context& context, const float* logits, int64_t ld,
                                       int64_t rows, int64_t vocab, const VocabularyTiles& tiles,
                                       const SamplingSettings& settings, const VocabularyDraw* draws,
                                       int32_t* tokens, float* log_probs, const cuda::Fault& fault) {
  if (rows == 0) return;
  SampleArguments a;
  a.logits = logits;
  a.ld = ld;
  a.aligned = ld % 4 == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  a.vocab = static_cast<int>(vocab);
  a.n_tiles = static_cast<int>(vocabulary_tile_count(vocab));
  a.sampleable = static_cast<int>(settings.sampleable);
  a.scale = vocabulary_scale(settings.temperature);
  a.greedy = settings.temperature == 0;
  if (settings.top_k > 0 && settings.top_k < settings.sampleable) a.top_k = static_cast<int>(settings.top_k);
  const bool has_top_p = settings.top_p < 1;
  if (has_top_p) a.share = static_cast<uint64_t>(std::rint(settings.top_p * 0x1p32));
  a.tiles = tiles;
  a.draws = draws;
  a.tokens = tokens;
  a.log_probs = log_probs;
  a.fault = fault;
  if (!a.greedy && (a.top_k > 0 || has_top_p)) {
    a.has_top_p = has_top_p;
    sample_filtered_cuda(context, rows, a);
    return;
  }
  cuda::launch_early(context, "sampling", draw_rows, static_cast<unsigned>(rows), kThreads,
                     static_cast<size_t>(a.n_tiles) * sizeof(uint64_t), a);
}

VocabularyTiles vocabulary_scratch_tiles(const cuda::Context& context, int64_t rows, int64_t vocab) {
  const int64_t n = rows * vocabulary_tile_count(vocab);
  VocabularyTiles tiles;
  tiles.sum = static_cast<uint64_t*>(context.scratch(n * 12));
  tiles.max_exponent = reinterpret_cast<int32_t*>(tiles.sum + n);
  return tiles;
}

void vocabulary_sample_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                            int64_t vocab, const SamplingSettings& settings, const VocabularyDraw* draws,
                            int32_t* tokens, float* log_probs, const cuda::Fault& fault) {
  const VocabularyTiles tiles = vocabulary_scratch_tiles(context, rows, vocab);
  vocabulary_tiles_cuda(context, logits, ld, rows, vocab, vocabulary_scale(settings.temperature), tiles);
  vocabulary_sample_from_tiles_cuda(context, logits, ld, rows, vocab, tiles, settings, draws, tokens,
                                    log_probs, fault);
}

}  // namespace lockstep::ops
