// SPDX-License-Identifier: Apache-2.0
// Backward over whole samples in three kernels. Row statistics (D, and M with r as one word a weight is
// scaled by); the gradients of keys and values, a warpgroup a block of 64 keys that walks the group's heads
// and queries in the order of the definition; the gradient of queries, a warpgroup 64 queries of a head that
// walks the blocks of keys. Scores are computed anew in both, so no order depends on who runs when.
#include <algorithm>

#include "device/cuda/launch.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_bf16_gradients.cuh"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace attention {
namespace {

// ---- row statistics ----

// kThreads threads take a row and head, each 8 neighbouring lanes of row_dot: 16, or 8 where d <= 64 and the
// other lanes are +0.
template <int kThreads>
__global__ void __launch_bounds__(256) statistics_kernel(const BackwardArguments a) {
  const int sample = static_cast<int>(blockIdx.x) / a.statistics_tiles;
  const int rows = a.samples.rows[sample];
  const int row0 = static_cast<int>(blockIdx.x) % a.statistics_tiles * 16;
  if (row0 >= rows) return;
  const int64_t begin = a.samples.begin[sample];
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  // 16 * heads is a multiple of the rows and heads of a warp: its threads stay together.
  for (int item = static_cast<int>(threadIdx.x) / kThreads; item < 16 * a.heads; item += 256 / kThreads) {
    const int row = row0 + item / a.heads;
    const int head = item % a.heads;
    const bool there = row < rows;
    const int64_t first_element = (begin + row) * a.ldo + static_cast<int64_t>(head) * a.d;
    float lanes[8] = {0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
    for (int i = 8 * thread; there && i < a.d; i += numerics::kSumLanes) {
      const Bf16* g = a.d_out + first_element + i;
      const Bf16* o = a.out + first_element + i;
      if (a.vector) {
        const uint4 x = *reinterpret_cast<const uint4*>(g);
        const uint4 y = *reinterpret_cast<const uint4*>(o);
        const uint32_t xs[4] = {x.x, x.y, x.z, x.w};
        const uint32_t ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          lanes[2 * e] = fmaf(low_half(xs[e]), low_half(ys[e]), lanes[2 * e]);
          lanes[2 * e + 1] = fmaf(high_half(xs[e]), high_half(ys[e]), lanes[2 * e + 1]);
        }
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if (i + e < a.d)
            lanes[e] = fmaf(numerics::bfloat16_to_float(g[e]), numerics::bfloat16_to_float(o[e]), lanes[e]);
        }
      }
    }
    float sum =
        ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
#pragma unroll
    for (int width = 1; width < kThreads; width *= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFU, sum, width);
    if (kThreads == 8) sum = sum + 0.0F;
    if (thread != 0) continue;
    const int64_t at = head * a.statistics.rows + begin + row;
    auto* pair = reinterpret_cast<float*>(a.statistics.pairs + at / 2) + at % 2;
    const float m = there ? a.max_exponent[(begin + row) * a.heads + head] : 0.0F;
    const uint32_t r = there ? __float_as_uint(a.inverse_sum[(begin + row) * a.heads + head]) : 0U;
    pair[0] = __uint_as_float(r - exponent_bits(m));
    pair[2] = there ? sum : 0.0F;
    a.statistics.floor[at] = there ? m + kFloor : -numerics::kMaxScore;
  }
}

// ---- gradients of keys and values ----

// Statistics of 64 queries in shared memory.
struct QueryTile {
  uint4 pairs[kRows / 2];
  float floor[kRows];
};

// Scores of 64 keys (rows) and 64 queries to P and dS as operands. diagonal: queries before the key are
// masked.
struct KeyWeights {
  // This thread's columns are queries 8j + column, + 1.
  static __device__ __forceinline__ void probabilities(const float (&dots)[32], float scale,
                                                       const QueryTile& tile, float top, bool diagonal,
                                                       int own, uint32_t (&p)[16]) {
    const int column = 2 * (own % 4);
    const int row = own / 32 * 16 + own % 32 / 4;
    const bool plain = !diagonal && least_of(dots) * scale >= top;
    if (__all_sync(0xFFFFFFFFU, plain)) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint2 bits = *reinterpret_cast<const uint2*>(&tile.pairs[4 * j + column / 2]);
        float w[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float s = dots[4 * j + e] * scale;
          w[e] = weight(s, shifted(s), e % 2 == 0 ? bits.x : bits.y);
        }
        p[2 * j] = pack(w[0], w[1]);
        p[2 * j + 1] = pack(w[2], w[3]);
      }
      return;
    }
    const int visible = diagonal ? column - row : kRows;
    const int first = diagonal ? own / 32 * 2 : 0;  // columns before 8 * first are masked for the whole warp
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      p[2 * j] = p[2 * j + 1] = 0U;
      if (j < first) continue;
      const uint2 bits = *reinterpret_cast<const uint2*>(&tile.pairs[4 * j + column / 2]);
      const float2 floor = *reinterpret_cast<const float2*>(&tile.floor[8 * j + column]);
      float w[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float s = dots[4 * j + e] * scale;
        const float t = shifted(s);
        const bool none = (8 * (e / 2) - 8 * j - e % 2 > visible) |
                          (t - numerics::kRoundEvenMagic < (e % 2 == 0 ? floor.x : floor.y));
        const float x = weight(s, t, e % 2 == 0 ? bits.x : bits.y);
        w[e] = none ? 0.0F : x;
      }
      p[2 * j] = pack(w[0], w[1]);
      p[2 * j + 1] = pack(w[2], w[3]);
    }
  }

  static __device__ __forceinline__ void differences(const float (&dp)[32], const uint32_t (&p)[16],
                                                     const QueryTile& tile, int own, uint32_t (&ds)[16]) {
    const int column = 2 * (own % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 d = *(reinterpret_cast<const float2*>(&tile.pairs[4 * j + column / 2]) + 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ds[2 * j + i] = pack(low_half(p[2 * j + i]) * (dp[4 * j + 2 * i] - d.x),
                             high_half(p[2 * j + i]) * (dp[4 * j + 2 * i + 1] - d.y));
      }
    }
  }
};

// sums of the chunks before, in shared memory: element i of a thread at [i * 128]; acc begins anew.
template <int kOut>
__device__ __forceinline__ void end_chunk(float (&acc)[kOut][32], float* total, bool first) {
#pragma unroll
  for (int i = 0; i < kOut * 32; ++i) {
    float* at = total + i * kWarpgroup;
    *at = first ? acc[i / 32][i % 32] : *at + acc[i / 32][i % 32];
    acc[i / 32][i % 32] = 0.0F;
  }
}

// Shared memory: k, v; stages of q, dO and their statistics; where slices are several, sums waiting for the
// rotation; where chunks may be several, totals. One warpgroup.
template <int kPanels, int kOut, bool kChunks>
__global__ void __launch_bounds__(kWarpgroup, kPanels == 1 ? 3 : 1)
    key_gradient_kernel(const BackwardArguments a) {
  constexpr int kStages = kPanels > 2 ? 1 : 2;
  constexpr int kSlices = kPanels / kOut;
  constexpr int kTileBytes = kPanels * kPanelBytes;
  constexpr int kWidth = kPanels * 64;
  extern __shared__ __align__(1024) char memory[];
  const int own = static_cast<int>(threadIdx.x);
  const int kv_head = static_cast<int>(blockIdx.x) % a.kv_heads;
  const int sample = static_cast<int>(blockIdx.x) / a.kv_heads;
  const int rows = a.samples.rows[sample];
  const int64_t begin = a.samples.begin[sample];
  const int padded = (rows + 15) / 16 * 16;
  const int block = static_cast<int>(blockIdx.y);  // the first has most queries
  const int key0 = block * kRows;
  if (key0 >= rows) return;
  const int there = min(kRows, rows - key0);
  const int group = a.heads / a.kv_heads;
  const int blocks = (rows + kRows - 1) / kRows - block;  // of queries
  const int steps = group * blocks;

  char* k = memory;
  char* v = k + kTileBytes;
  char* stages = v + kTileBytes;
  auto* tiles = reinterpret_cast<QueryTile*>(stages + kStages * 2 * kTileBytes);
  auto* rest = reinterpret_cast<char*>(tiles + kStages);
  auto* staged = reinterpret_cast<float*>(kSlices == 1 ? k : rest);
  auto* staged_dv = reinterpret_cast<float*>(stages);
  auto* total = reinterpret_cast<float*>(kSlices == 1 ? rest : rest + 2 * kTileBytes) + own;

  // Steps are loaded in order: of which head and block of queries.
  int next_head = 0;
  int next_block = 0;
  const auto load_queries = [&](int step) {
    const int head = kv_head * group + next_head;
    const int query0 = key0 + next_block * kRows;
    if (++next_block == blocks) {
      next_block = 0;
      ++next_head;
    }
    const int queries = min(kRows, rows - query0);
    char* q = stages + step % kStages * 2 * kTileBytes;
    load_tile<kPanels, kWarpgroup>(q, a.q + (begin + query0) * a.ld + head * a.d, a.ld, 0, queries, a.d,
                                   a.vector, own);
    load_tile<kPanels, kWarpgroup>(q + kTileBytes, a.d_out + (begin + query0) * a.ldo + head * a.d, a.ldo, 0,
                                   queries, a.d, a.vector, own);
    const int64_t at = head * a.statistics.rows + begin + query0;
    QueryTile& tile = tiles[step % kStages];
    if (own < 32) {
      const bool some = query0 + 2 * own < padded;
      copy_16(shared_address(&tile.pairs[own]), a.statistics.pairs + (some ? at / 2 + own : 0), some);
    } else if (own < 48) {
      const int row = 4 * (own - 32);
      const bool some = query0 + row < padded;
      copy_16(shared_address(&tile.floor[row]), a.statistics.floor + (some ? at + row : 0), some);
    }
    copy_commit();
  };

  const int64_t key_row = begin + key0;
  load_tile<kPanels, kWarpgroup>(k, a.k + key_row * a.ld + kv_head * a.d, a.ld, 0, there, a.d, a.vector, own);
  load_tile<kPanels, kWarpgroup>(v, a.v + key_row * a.ld + kv_head * a.d, a.ld, 0, there, a.d, a.vector, own);
  const int to_write = min(kRows, padded - key0);
  Bf16* to = a.d_qkv + key_row * a.ld + (a.heads + kv_head) * a.d;

  for (int slice = 0; slice < kSlices && slice * kOut * 64 < a.d; ++slice) {
    const int first_panel = slice * kOut;
    float dk[kOut][32];
    float dv[kOut][32];
#pragma unroll
    for (int i = 0; i < kOut * 32; ++i) dk[i / 32][i % 32] = dv[i / 32][i % 32] = 0.0F;
    int chunk = 0;
    int in_group = 0;  // of the step: the head
    int at_block = 0;  // and the block of queries
    next_head = next_block = 0;
    load_queries(0);
    for (int step = 0; step < steps; ++step) {
      const char* q = stages + step % kStages * 2 * kTileBytes;
      const char* d_out = q + kTileBytes;
      const QueryTile& tile = tiles[step % kStages];
      copy_wait_all();
      fence_async();
      __syncthreads();
      if (kStages == 2 && step + 1 < steps) load_queries(step + 1);
      float dots[32];
      float dp[32];
      mma_fence();
      mma_tiles<kPanels>(dots, k, q);
      mma_commit();
      mma_tiles<kPanels>(dp, v, d_out);
      mma_commit();
      // The highest floor of the tile's queries.
      const int left = padded - key0 - at_block * kRows - own % 32;
      float top = fmaxf(left > 0 ? tile.floor[own % 32] : -INFINITY,
                        left > 32 ? tile.floor[own % 32 + 32] : -INFINITY);
#pragma unroll
      for (int width = 1; width < 32; width *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, width));
      mma_wait<1>();
      const bool diagonal = at_block == 0;
      uint32_t p[16];
      uint32_t ds[16];
      KeyWeights::probabilities(dots, a.scale, tile, top, diagonal, own, p);
      if constexpr (kChunks) {
        mma_wait<0>();
        KeyWeights::differences(dp, p, tile, own, ds);
        const int query0 = at_block * kRows;  // from the block's start
        const int first_group = (in_group * (padded - key0) + query0) / 16;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (key0 + query0 + 16 * i < padded && (first_group + i) / a.chunk_groups != chunk) {
            end_chunk<kOut>(dv, total, chunk == 0);
            end_chunk<kOut>(dk, total + kOut * 32 * kWarpgroup, chunk == 0);
            chunk = (first_group + i) / a.chunk_groups;
          }
          mma_fence();
          mma_group<kOut>(dv, p, i, d_out + first_panel * kPanelBytes);
          mma_group<kOut>(dk, ds, i, q + first_panel * kPanelBytes);
          mma_commit();
          mma_wait<0>();
        }
      } else {
        mma_wait<0>();
        mma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) mma_group<kOut>(dv, p, i, d_out + first_panel * kPanelBytes);
        mma_commit();
        KeyWeights::differences(dp, p, tile, own, ds);
        mma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) mma_group<kOut>(dk, ds, i, q + first_panel * kPanelBytes);
        mma_commit();
        mma_wait<0>();
      }
      if (kStages == 1) {
        __syncthreads();
        if (step + 1 < steps) load_queries(step + 1);
      }
      if (++at_block == blocks) {
        at_block = 0;
        ++in_group;
      }
    }
    if (kChunks && chunk != 0) {
#pragma unroll
      for (int i = 0; i < kOut * 32; ++i) {
        dv[i / 32][i % 32] = total[i * kWarpgroup] + dv[i / 32][i % 32];
        dk[i / 32][i % 32] = total[(kOut * 32 + i) * kWarpgroup] + dk[i / 32][i % 32];
      }
    }
    __syncthreads();
    stage<kOut>(staged, kWidth, first_panel * 64, dk, a.gradient_scale, own);
    stage<kOut>(staged_dv, kOut * 64, 0, dv, 1.0F, own);
    __syncthreads();
    const int columns = min(kOut * 64, a.d - first_panel * 64);
    store(staged_dv, kOut * 64, there, to_write, columns, nullptr, nullptr, 0,
          to + static_cast<int64_t>(a.kv_heads) * a.d + first_panel * 64, a.ld, a.vector_out, own);
    __syncthreads();
  }
  store(staged, kWidth, there, to_write, a.d, a.rope.cos, a.rope.sin, key0, to, a.ld, a.vector_out, own);
}

// ---- gradient of queries ----

// Shared memory: q and dO of each warpgroup; stages of k and v; where slices are several, sums waiting for
// the rotation.
template <int kPanels, int kOut, int kGroups>
__global__ void __launch_bounds__(kGroups* kWarpgroup, kPanels == 1 ? (kGroups == 1 ? 3 : 2) : 1)
    query_gradient_kernel(const BackwardArguments a) {
  constexpr int kStages = kPanels > 2 ? 1 : 2;
  constexpr int kSlices = kPanels / kOut;
  constexpr int kTileBytes = kPanels * kPanelBytes;
  constexpr int kWidth = kPanels * 64;
  extern __shared__ __align__(1024) char memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const int warpgroup = thread / kWarpgroup;
  const int own = thread % kWarpgroup;
  int index = static_cast<int>(blockIdx.x);
  const int head_tile = index % a.head_tiles;
  index /= a.head_tiles;
  const int kv_head = index % a.kv_heads;
  const int sample = index / a.kv_heads;
  const int rows = a.samples.rows[sample];
  const int64_t begin = a.samples.begin[sample];
  const int padded = (rows + 15) / 16 * 16;
  const int block = static_cast<int>(gridDim.y - 1 - blockIdx.y);  // the last has most keys
  const int query0 = block * kRows;
  if (query0 >= rows) return;
  const int there = min(kRows, rows - query0);
  const int group = a.heads / a.kv_heads;
  const int in_group = head_tile * kGroups + warpgroup;
  const bool active = in_group < group;
  const int head = kv_head * group + in_group;

  char* q = memory + warpgroup * 2 * kTileBytes;
  char* d_out = q + kTileBytes;
  char* stages = memory + kGroups * 2 * kTileBytes;
  auto* staged = reinterpret_cast<float*>(kSlices == 1 ? q : stages + kStages * 2 * kTileBytes);

  const auto load_keys = [&](int key_block) {
    char* k = stages + key_block % kStages * 2 * kTileBytes;
    const int64_t at = (begin + key_block * kRows) * a.ld + kv_head * a.d;
    const int keys = min(kRows, rows - key_block * kRows);
    load_tile<kPanels, kGroups * kWarpgroup>(k, a.k + at, a.ld, 0, keys, a.d, a.vector, thread);
    load_tile<kPanels, kGroups * kWarpgroup>(k + kTileBytes, a.v + at, a.ld, 0, keys, a.d, a.vector, thread);
    copy_commit();
  };

  const int64_t row0 = begin + query0;
  const int lane = own % 32;
  const int row = own / 32 * 16 + lane / 4;
  uint32_t bits[2] = {0, 0};
  float difference[2] = {0.0F, 0.0F};
  float floor[2] = {-numerics::kMaxScore, -numerics::kMaxScore};
  if (active) {
    load_tile<kPanels, kWarpgroup>(q, a.q + row0 * a.ld + head * a.d, a.ld, 0, there, a.d, a.vector, own);
    load_tile<kPanels, kWarpgroup>(d_out, a.d_out + row0 * a.ldo + head * a.d, a.ldo, 0, there, a.d, a.vector,
                                   own);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (row + 8 * i >= there) continue;
      const int64_t at = head * a.statistics.rows + row0 + row + 8 * i;
      const auto* pair = reinterpret_cast<const uint32_t*>(a.statistics.pairs + at / 2) + at % 2;
      bits[i] = pair[0];
      difference[i] = __uint_as_float(pair[2]);
      floor[i] = a.statistics.floor[at];
    }
  }
  const float top = fmaxf(floor[0], floor[1]);
  for (int slice = 0; slice < kSlices && slice * kOut * 64 < a.d; ++slice) {
    const int first_panel = slice * kOut;
    float dq[kOut][32];
#pragma unroll
    for (int i = 0; i < kOut * 32; ++i) dq[i / 32][i % 32] = 0.0F;
    load_keys(0);
    for (int key_block = 0; key_block <= block; ++key_block) {
      const char* k = stages + key_block % kStages * 2 * kTileBytes;
      const char* v = k + kTileBytes;
      copy_wait_all();
      fence_async();
      __syncthreads();
      if (kStages == 2 && key_block < block) load_keys(key_block + 1);
      if (active) {
        float dots[32];
        float dp[32];
        mma_fence();
        mma_tiles<kPanels>(dots, q, k);
        mma_commit();
        mma_tiles<kPanels>(dp, d_out, v);
        mma_commit();
        mma_wait<1>();
        const bool diagonal = key_block == block;
        uint32_t p[16];
        if (__all_sync(0xFFFFFFFFU, !diagonal && least_of(dots) * a.scale >= top)) {
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            const float s = dots[2 * i] * a.scale;
            const float s_next = dots[2 * i + 1] * a.scale;
            p[i] = pack(weight(s, shifted(s), bits[i % 2]), weight(s_next, shifted(s_next), bits[i % 2]));
          }
        } else {
          const int visible = diagonal ? row - 2 * (lane % 4) : kRows;
          const int last = diagonal ? own / 32 * 2 + 1 : 7;  // columns after it are masked for the whole warp
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            p[2 * j] = p[2 * j + 1] = 0U;
            if (j > last) continue;
            float w[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float s = dots[4 * j + e] * a.scale;
              const float t = shifted(s);
              const bool none =
                  (8 * j + e % 2 - 8 * (e / 2) > visible) | (t - numerics::kRoundEvenMagic < floor[e / 2]);
              const float x = weight(s, t, bits[e / 2]);
              w[e] = none ? 0.0F : x;
            }
            p[2 * j] = pack(w[0], w[1]);
            p[2 * j + 1] = pack(w[2], w[3]);
          }
        }
        mma_wait<0>();
        uint32_t ds[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          ds[i] = pack(low_half(p[i]) * (dp[2 * i] - difference[i % 2]),
                       high_half(p[i]) * (dp[2 * i + 1] - difference[i % 2]));
        }
        mma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) mma_group<kOut>(dq, ds, i, k + first_panel * kPanelBytes);
        mma_commit();
        mma_wait<0>();
      }
      if (kStages == 1) {
        __syncthreads();
        if (key_block < block) load_keys(key_block + 1);
      }
    }
    __syncthreads();
    if (active) stage<kOut>(staged, kWidth, first_panel * 64, dq, a.gradient_scale, own);
  }
  __syncthreads();
  if (active)
    store(staged, kWidth, there, min(kRows, padded - query0), a.d, a.rope.cos, a.rope.sin, query0,
          a.d_qkv + row0 * a.ld + head * a.d, a.ld, a.vector_out, own);
}

template <int kPanels, int kOut, bool kChunks>
void launch_keys(const cuda::Context& context, const BackwardArguments& a, unsigned blocks) {
  constexpr int kStages = kPanels > 2 ? 1 : 2;
  int bytes = (2 + 2 * kStages) * kPanels * kPanelBytes + kStages * static_cast<int>(sizeof(QueryTile));
  if (kPanels != kOut) bytes += 2 * kPanels * kPanelBytes;
  if (kChunks) bytes += 4 * kOut * kPanelBytes;
  auto* kernel = key_gradient_kernel<kPanels, kOut, kChunks>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "shared memory of attention");
  const dim3 grid(static_cast<unsigned>(a.samples.count * a.kv_heads), blocks);
  kernel<<<grid, kWarpgroup, bytes, context.stream()>>>(a);
  cuda::check_launch("attention backward, bf16: keys and values");
}

template <int kPanels, int kOut, int kGroups>
void launch_queries(const cuda::Context& context, BackwardArguments a, unsigned blocks) {
  constexpr int kStages = kPanels > 2 ? 1 : 2;
  int bytes = (2 * kGroups + 2 * kStages) * kPanels * kPanelBytes;
  if (kPanels != kOut) bytes += 2 * kPanels * kPanelBytes;
  a.head_tiles = (a.heads / a.kv_heads + kGroups - 1) / kGroups;
  auto* kernel = query_gradient_kernel<kPanels, kOut, kGroups>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "shared memory of attention");
  const dim3 grid(static_cast<unsigned>(a.samples.count * a.kv_heads * a.head_tiles), blocks);
  kernel<<<grid, kGroups * kWarpgroup, bytes, context.stream()>>>(a);
  cuda::check_launch("attention backward, bf16: queries");
}

template <bool kChunks>
void keys_of(const cuda::Context& context, const BackwardArguments& a, unsigned blocks) {
  if (a.d <= 64) return launch_keys<1, 1, kChunks>(context, a, blocks);
  if (a.d <= 128) return launch_keys<2, 2, kChunks>(context, a, blocks);
  launch_keys<4, 1, kChunks>(context, a, blocks);
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace
}  // namespace attention

int64_t attention_backward_bf16_scratch(const AttentionShape& shape, int64_t total_rows) {
  return shape.heads * ((total_rows + 15) / 16 * 16) * 12;
}

void attention_backward_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                  const numerics::Bf16* qkv, int64_t ld, const numerics::Bf16* out,
                                  const numerics::Bf16* d_out, const float* max_exponent,
                                  const float* inverse_sum, const AttentionSamplesCuda& samples,
                                  const AttentionRope& rope, numerics::Bf16* d_qkv, int64_t chunk) {
  if (samples.count == 0 || samples.max_rows == 0) return;
  attention::BackwardArguments a{};
  a.samples = samples;
  a.heads = static_cast<int>(shape.heads);
  a.kv_heads = static_cast<int>(shape.kv_heads);
  a.d = static_cast<int>(shape.head_size);
  a.q = qkv;
  a.k = qkv + shape.heads * shape.head_size;
  a.v = a.k + shape.kv_heads * shape.head_size;
  a.out = out;
  a.d_out = d_out;
  a.max_exponent = max_exponent;
  a.inverse_sum = inverse_sum;
  a.rope = rope;
  a.d_qkv = d_qkv;
  a.ld = ld;
  a.ldo = shape.heads * shape.head_size;
  a.scale = attention_score_scale(shape.head_size);
  a.gradient_scale = attention_gradient_scale(shape.head_size);
  a.chunk_groups = static_cast<int>(chunk / 16);
  a.vector = a.d % 8 == 0 && ld % 8 == 0 && attention::aligned(qkv) && attention::aligned(d_out) &&
             attention::aligned(out);
  a.vector_out = a.d % 16 == 0 && ld % 8 == 0 && attention::aligned(d_qkv) && attention::aligned(rope.cos) &&
                 attention::aligned(rope.sin);
  a.statistics.rows = (samples.total_rows + 15) / 16 * 16;
  auto* scratch =
      static_cast<char*>(context.scratch(attention_backward_bf16_scratch(shape, samples.total_rows)));
  a.statistics.pairs = reinterpret_cast<uint4*>(scratch);
  a.statistics.floor = reinterpret_cast<float*>(scratch + shape.heads * a.statistics.rows * 8);

  a.statistics_tiles = static_cast<int>(cuda::blocks_for(samples.max_rows, 16));
  const auto grid = static_cast<unsigned>(a.statistics_tiles * samples.count);  // in x: samples may be many
  if (a.d <= 64) {
    attention::statistics_kernel<8><<<grid, 256, 0, context.stream()>>>(a);
  } else {
    attention::statistics_kernel<16><<<grid, 256, 0, context.stream()>>>(a);
  }
  cuda::check_launch("attention backward, bf16: statistics");
  const unsigned blocks = cuda::blocks_for(samples.max_rows, attention::kRows);
  const int64_t padded = (samples.max_rows + 15) / 16 * 16;
  if (shape.heads / shape.kv_heads * padded > chunk) {
    attention::keys_of<true>(context, a, blocks);
  } else {
    attention::keys_of<false>(context, a, blocks);
  }
  if (a.d <= 64) {
    if (a.heads == a.kv_heads) return attention::launch_queries<1, 1, 1>(context, a, blocks);
    return attention::launch_queries<1, 1, 2>(context, a, blocks);
  }
  if (a.d <= 128) return attention::launch_queries<2, 2, 1>(context, a, blocks);
  attention::launch_queries<4, 1, 1>(context, a, blocks);
}

}  // namespace lockstep::ops
