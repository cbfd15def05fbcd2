// SPDX-License-Identifier: Apache-2.0
// Sums of tiles and rows, log-probs. Eight threads share a tile: 16 logits each, in vectors of four.
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/vocabulary/vocabulary_block.cuh"
#include "ops/vocabulary/vocabulary_cuda.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8;
constexpr int kCount = kVocabularyTile / kGroup;
constexpr int kTilesPerBlock = kThreads / kGroup;

template <bool kEntropy>
__global__ void __launch_bounds__(kThreads) tile_sums(const float* logits, int64_t ld, int vocab, int n_tiles,
                                                      float scale, bool aligned, VocabularyTiles tiles) {
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int64_t row = blockIdx.x;
  const int tile = static_cast<int>(blockIdx.y * kTilesPerBlock + threadIdx.x / kGroup);
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const int first = tile * kVocabularyTile + lane * 4;
  logits += row * ld;
  float x[kCount];
  if (aligned && (tile + 1) * kVocabularyTile <= vocab) {
#pragma unroll
    for (int k = 0; k < kCount; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(logits + first + k * kGroup);
      x[k] = four.x;
      x[k + 1] = four.y;
      x[k + 2] = four.z;
      x[k + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const int i = first + k / 4 * 4 * kGroup + k % 4;
      x[k] = i < vocab ? logits[i] : -__builtin_inff();
    }
  }
  const TileSums sums = vocabulary_tile<kCount, kGroup, kEntropy>(x, scale);
  if (lane != 0 || tile >= n_tiles) return;
  const int64_t at = row * n_tiles + tile;
  tiles.max_exponent[at] = sums.max_exponent;
  tiles.sum[at] = sums.sum;
  if constexpr (kEntropy) tiles.entropy_sum[at] = sums.entropy_sum;
}

__global__ void __launch_bounds__(kThreads)
    combine_tiles(VocabularyTiles tiles, int n_tiles, VocabularySums* __restrict__ sums) {
  __shared__ BlockMemory memory;
  const VocabularySums row = row_sums(row_tiles(tiles, blockIdx.x, n_tiles), &memory, nullptr);
  if (threadIdx.x == 0) sums[blockIdx.x] = row;
}

__global__ void __launch_bounds__(kThreads)
    log_probs(const float* __restrict__ logits, int64_t ld, int64_t rows, float scale,
              const VocabularySums* __restrict__ sums, const int32_t* __restrict__ targets,
              float* __restrict__ log_prob, double* __restrict__ entropy, cuda::Fault fault) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  const VocabularySums s = sums[row];
  if (!s.valid) cuda::report(fault, static_cast<unsigned long long>(row));
  log_prob[row] = s.valid ? vocabulary_log_prob_of(logits[row * ld + targets[row]], scale, s) : 0.0F;
  if (entropy != nullptr) entropy[row] = s.valid ? vocabulary_entropy_of(s) : 0.0;
}

}  // namespace

int64_t vocabulary_tile_count(int64_t vocab) {
  return (vocab + numerics::kVocabTile - 1) / numerics::kVocabTile;
}

void vocabulary_tiles_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                           int64_t vocab, float scale, const VocabularyTiles& tiles) {
  if (rows == 0) return;
  const int64_t n_tiles = vocabulary_tile_count(vocab);
  const bool aligned = ld % 4 == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  const dim3 grid(static_cast<unsigned>(rows), cuda::blocks_for(n_tiles, kTilesPerBlock));
  const auto kernel = tiles.entropy_sum != nullptr ? tile_sums<true> : tile_sums<false>;
  cuda::launch_early(context, "vocabulary tiles", kernel, grid, kThreads, 0, logits, ld,
                     static_cast<int>(vocab), static_cast<int>(n_tiles), scale, aligned, tiles);
}

void vocabulary_sums_from_tiles_cuda(const cuda::Context& context, const VocabularyTiles& tiles, int64_t rows,
                                     int64_t vocab, VocabularySums* sums) {
  if (rows == 0) return;
  combine_tiles<<<static_cast<unsigned>(rows), kThreads, 0, context.stream()>>>(
      tiles, static_cast<int>(vocabulary_tile_count(vocab)), sums);
  cuda::check_launch("vocabulary sums");
}

void vocabulary_sums_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                          int64_t vocab, float scale, VocabularySums* sums) {
  const int64_t n = rows * vocabulary_tile_count(vocab);
  VocabularyTiles tiles;
  tiles.sum = static_cast<uint64_t*>(context.scratch(n * 20));
  tiles.entropy_sum = reinterpret_cast<int64_t*>(tiles.sum + n);
  tiles.max_exponent = reinterpret_cast<int32_t*>(tiles.entropy_sum + n);
  vocabulary_tiles_cuda(context, logits, ld, rows, vocab, scale, tiles);
  vocabulary_sums_from_tiles_cuda(context, tiles, rows, vocab, sums);
}

void vocabulary_log_probs_cuda(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows,
                               float scale, const VocabularySums* sums, const int32_t* targets,
                               float* log_prob, double* entropies, const cuda::Fault& fault) {
  if (rows == 0) return;
  log_probs<<<cuda::blocks_for(rows, kThreads), kThreads, 0, context.stream()>>>(
      logits, ld, rows, scale, sums, targets, log_prob, entropies, fault);
  cuda::check_launch("log-probs");
}

}  // namespace lockstep::ops
