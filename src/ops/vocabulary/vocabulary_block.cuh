// SPDX-License-Identifier: Apache-2.0
// What a thread block that owns a row shares: sums over its threads, tiles of the row, the row's sums.
#pragma once

#include <cstdint>

#include "numerics/vocabulary_tile.cuh"
#include "ops/vocabulary/vocabulary_cuda.h"
#include "ops/vocabulary/vocabulary_formulas.h"

namespace lockstep::ops {

using numerics::group_sum;
using numerics::kRoundEvenBits;
using numerics::kTileEmpty;
using numerics::kTileInvalid;
using numerics::tile_round;
using numerics::tile_weight;
using numerics::TileSums;
using numerics::vocabulary_tile;

inline constexpr int kVocabularyTile = static_cast<int>(numerics::kVocabTile);

// One value a warp in shared memory, for the reductions below; they begin and end with a barrier.
struct BlockMemory {
  uint64_t values[32];
};

template <typename T, typename Op>
__device__ __forceinline__ T block_reduce(T x, BlockMemory* memory, const Op& op) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x = op(x, __shfl_xor_sync(0xFFFFFFFFU, x, width));
  auto* values = reinterpret_cast<T*>(memory->values);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) values[threadIdx.x >> 5] = x;
  __syncthreads();
  T out = values[0];
  for (unsigned i = 1; i < blockDim.x / 32; ++i) out = op(out, values[i]);
  __syncthreads();
  return out;
}
template <typename T>
__device__ __forceinline__ T block_sum(T x, BlockMemory* memory) {
  return block_reduce(x, memory, [](T a, T b) { return a + b; });
}
template <typename T>
__device__ __forceinline__ T block_max(T x, BlockMemory* memory) {
  return block_reduce(x, memory, [](T a, T b) { return a > b ? a : b; });
}
template <typename T>
__device__ __forceinline__ T block_min(T x, BlockMemory* memory) {
  return block_reduce(x, memory, [](T a, T b) { return a < b ? a : b; });
}

// Sum of x over the threads of the warp up to and including this one.
__device__ __forceinline__ uint64_t warp_running_sum(uint64_t x) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int width = 1; width < 32; width *= 2) {
    const uint64_t below = __shfl_up_sync(0xFFFFFFFFU, x, width);
    if (lane >= width) x += below;
  }
  return x;
}
// Sum of x over the threads before this one, and over all.
__device__ __forceinline__ uint64_t block_sum_before(uint64_t x, BlockMemory* memory, uint64_t* all) {
  const uint64_t running = warp_running_sum(x);
  __syncthreads();
  if ((threadIdx.x & 31) == 31) memory->values[threadIdx.x >> 5] = running;
  __syncthreads();
  uint64_t before = running - x;
  *all = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) {
    if (i < threadIdx.x / 32) before += memory->values[i];
    *all += memory->values[i];
  }
  __syncthreads();
  return before;
}

// The tiles of one row.
struct RowTiles {
  const int32_t* max_exponent;
  const uint64_t* sum;
  const int64_t* entropy_sum;  // may be null
  int count;
};
__device__ __forceinline__ RowTiles row_tiles(const VocabularyTiles& tiles, int64_t row, int count) {
  const int64_t at = row * count;
  return {tiles.max_exponent + at, tiles.sum + at,
          tiles.entropy_sum != nullptr ? tiles.entropy_sum + at : nullptr, count};
}

// S, M, E of a row, in every thread of the block. masses, if not null: shared memory [count], becomes W_j >>
// d_j.
__device__ __forceinline__ VocabularySums row_sums(const RowTiles& tiles, BlockMemory* memory,
                                                   uint64_t* masses) {
  int32_t max = kTileEmpty;  // the least int; kTileInvalid is the largest
  for (int j = static_cast<int>(threadIdx.x); j < tiles.count; j += static_cast<int>(blockDim.x)) {
    max = tiles.max_exponent[j] > max ? tiles.max_exponent[j] : max;
  }
  max = block_max(max, memory);
  VocabularySums out;
  if (max == kTileInvalid || max == kTileEmpty) return out;
  uint64_t sum = 0;
  int64_t entropy = 0;
  for (int j = static_cast<int>(threadIdx.x); j < tiles.count; j += static_cast<int>(blockDim.x)) {
    const bool any = tiles.max_exponent[j] != kTileEmpty;
    const int64_t d = any ? max - tiles.max_exponent[j] : 0;
    const uint64_t mass = any ? shifted(tiles.sum[j], d) : 0;
    sum += mass;
    if (masses != nullptr) masses[j] = mass;
    if (any && tiles.entropy_sum != nullptr) {
      entropy += shifted(tiles.entropy_sum[j], d) + d * static_cast<int64_t>(mass);
    }
  }
  out.valid = true;
  out.max_exponent = max;
  out.sum = block_sum(sum, memory);
  out.entropy_sum = tiles.entropy_sum != nullptr ? block_sum(entropy, memory) : 0;
  return out;
}

}  // namespace lockstep::ops
