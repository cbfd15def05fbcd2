// SPDX-License-Identifier: Apache-2.0
// The token of a row whose tiles are known, by one thread block.
#pragma once

#include <cstdint>

#include "numerics/philox.h"
#include "ops/vocabulary/vocabulary_block.cuh"

namespace lockstep::ops {

// One row, as every thread of its block knows it.
struct SampledRow {
  const float* logits;
  bool aligned;  // to 16 bytes
  int vocab;
  int sampleable;
  float scale;
  RowTiles tiles;
  VocabularySums sums;  // valid
};

inline constexpr int kOrderIdBits = 19;
static_assert(numerics::kMaxVocab == int64_t{1} << kOrderIdBits);
inline constexpr int kOrderKeyBits = 32 + kOrderIdBits;

// Ascending in the order of ids: larger logit first (-0 equals +0), then smaller id. Not for NaN.
__device__ __forceinline__ uint64_t order_key(float logit, int id) {
  const uint32_t bits = numerics::float_bits(logit + 0.0F);
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return (static_cast<uint64_t>(~ascending) << kOrderIdBits) | static_cast<uint64_t>(id);
}
__device__ __forceinline__ int id_of_key(uint64_t key) {
  return static_cast<int>(key & ((uint64_t{1} << kOrderIdBits) - 1));
}

// Calls f(id, logit) for the ids of a tile that may be drawn, four a thread of a warp.
template <typename F>
__device__ __forceinline__ void for_tile(const SampledRow& row, int tile, const F& f) {
  const int first = tile * kVocabularyTile + (static_cast<int>(threadIdx.x) & 31) * 4;
  float x[4];
  if (row.aligned && (tile + 1) * kVocabularyTile <= row.sampleable) {
    const float4 four = *reinterpret_cast<const float4*>(row.logits + first);
    x[0] = four.x;
    x[1] = four.y;
    x[2] = four.z;
    x[3] = four.w;
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = first + k < row.sampleable ? row.logits[first + k] : 0.0F;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (first + k < row.sampleable) f(first + k, x[k]);
  }
}

// The first id in the order. Only tiles whose M_j is the largest can hold it, and the tile that is not drawn
// from as a whole.
__device__ __forceinline__ int first_in_order(const SampledRow& row, BlockMemory* memory) {
  const int full = row.sampleable / kVocabularyTile;
  int32_t top = kTileEmpty;
  for (int j = static_cast<int>(threadIdx.x); j < full; j += static_cast<int>(blockDim.x)) {
    top = row.tiles.max_exponent[j] > top ? row.tiles.max_exponent[j] : top;
  }
  top = block_max(top, memory);
  uint64_t best = ~uint64_t{0};
  for (int j = static_cast<int>(threadIdx.x / 32); j * kVocabularyTile < row.sampleable;
       j += static_cast<int>(blockDim.x / 32)) {
    if (j < full && row.tiles.max_exponent[j] != top) continue;
    for_tile(row, j, [&](int id, float logit) {
      const uint64_t key = order_key(logit, id);
      best = key < best ? key : best;
    });
  }
  return id_of_key(block_min(best, memory));
}

// Sum of the weights of a tile's ids that keep(id, logit) keeps, in every thread of the warp.
template <typename Keep>
__device__ __forceinline__ uint64_t kept_weight(const SampledRow& row, int tile, const Keep& keep) {
  const int32_t max = row.tiles.max_exponent[tile];
  uint64_t sum = 0;
  if (max != kTileEmpty) {
    for_tile(row, tile, [&](int id, float logit) {
      if (keep(id, logit)) sum += tile_weight(logit * row.scale, max);
    });
  }
  return group_sum<32>(sum);
}

struct Drawn {
  uint64_t before;
  int tile;
  int token;
};

// masses: shared memory, K_j >> d_j of every tile. The token for these bits, or -1 where all masses are 0; in
// every thread.
template <typename Keep>
__device__ __forceinline__ int draw_token(const SampledRow& row, const uint64_t* masses, uint64_t bits,
                                          const Keep& keep, BlockMemory* memory, Drawn* shared) {
  const int count = row.tiles.count;
  const int per_thread = (count + static_cast<int>(blockDim.x) - 1) / static_cast<int>(blockDim.x);
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = begin + per_thread < count ? begin + per_thread : count;
  uint64_t mine = 0;
  for (int j = begin; j < end; ++j) mine += masses[j];
  uint64_t all = 0;
  uint64_t before = block_sum_before(mine, memory, &all);
  if (all == 0) return -1;
  const uint64_t target = __umul64hi(bits, all);
  if (before <= target && target - before < mine) {
    int j = begin;
    while (before + masses[j] <= target) before += masses[j++];
    shared->before = before;
    shared->tile = j;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const int tile = shared->tile;
    const int32_t max = row.tiles.max_exponent[tile];
    uint64_t w[4] = {};
    const int first = tile * kVocabularyTile + static_cast<int>(threadIdx.x) * 4;
    for_tile(row, tile, [&](int id, float logit) {
      const uint64_t weight = keep(id, logit) ? tile_weight(logit * row.scale, max) : 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) w[k] = id == first + k ? weight : w[k];
    });
    const uint64_t sum = (w[0] + w[1]) + (w[2] + w[3]);
    uint64_t running = warp_running_sum(sum) - sum;
    int hit = -1;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      running += w[k];
      if (hit < 0 && shared->before + shifted(running, row.sums.max_exponent - max) > target) hit = first + k;
    }
    const unsigned hits = __ballot_sync(0xFFFFFFFFU, hit >= 0);
    const int token = __shfl_sync(0xFFFFFFFFU, hit, __ffs(static_cast<int>(hits)) - 1);
    if (threadIdx.x == 0) shared->token = token;
  }
  __syncthreads();
  return shared->token;
}

__device__ __forceinline__ uint64_t bits_of_draw(const VocabularyDraw& d) {
  return numerics::draw(d.seed, static_cast<numerics::Purpose>(d.purpose), d.ordinal, d.sample, d.position);
}

}  // namespace lockstep::ops
