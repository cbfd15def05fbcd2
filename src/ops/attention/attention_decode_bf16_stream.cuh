// SPDX-License-Identifier: Apache-2.0
// Attention of one query a sequence, head sizes 64 and 128, 8 query heads or fewer to a key head. A thread
// block takes one sequence and key/value head, or a segment of it. Four warps take blocks of 64 keys in
// rounds of four: scores and weights of a block each, then the chains of o^T = V^T p^T, each for its columns,
// so that the query heads are the narrow side of the tensor core's products.
#pragma once

#include "device/cuda/encode_tiled.h"
#include "ops/attention/attention_decode_bf16_ring.cuh"

namespace lockstep::ops::attention {
namespace stream {

// Scores of 64 keys: those of keys 16i + lane / 4 (+ 8) and heads 2 * (lane % 4) (+ 1) in s[i].
template <int kPanels>
__device__ __forceinline__ void block_scores(float (&s)[4][4], uint32_t tile,
                                             const uint32_t (&q)[4 * kPanels][2], float scale, int lane) {
  const int row = lane % 16;
  const uint32_t from = tile + row * 128;
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0F;
#pragma unroll
  for (int step = 0; step < 4 * kPanels; ++step) {
    const uint32_t at = from + step / 4 * kPanelBytes + (((2 * (step % 4) + lane / 16) ^ (row & 7)) << 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t k[4];
      load_matrices(k, at + i * 2048);
      mma_small(s[i], k, q[step][0], q[step][1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] = s[i][e] * scale;
  }
}

template <class P>
__global__ void __launch_bounds__(kThreads, P::kResident)
    stream_kernel(const __grid_constant__ DecodeArguments a, const __grid_constant__ PageMaps maps) {
  constexpr int kPanels = P::kPanels;
  constexpr int kSlots = P::kSlots;
  constexpr int kD = 64 * kPanels;
  constexpr int kSteps = 4 * kPanels;
  // Where all of a round is in the ring, operands of the block to come are read beside a block's chain.
  constexpr int kAhead = kPanels == 1 && kSlots >= 2 * kRound ? 1 : 0;
  extern __shared__ __align__(1024) char bytes[];
  const bool early = a.fresh.k != nullptr;
  if (!early) cuda::wait_for_launch_before();
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t memory = shared_address(bytes);
  Unit u;
  u.row = static_cast<int>(blockIdx.x);
  u.segment = static_cast<int>(blockIdx.z);
  if (threadIdx.x == kWarps * 32) {
    hopper::prefetch_map(&maps.block);
    hopper::prefetch_map(&maps.rows);
  }
  const int keys = __ldcg(a.keys + u.row);
  u.sequence = __ldcg(a.sequence + u.row);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      hopper::barrier_init(memory + P::kFull + i * 8, 1);
      hopper::barrier_init(memory + P::kEmpty + i * 8, kWarps);
    }
    hopper::barrier_init_fence();
  }
  const int group = a.heads / a.kv_heads;
  u.kv_head = static_cast<int>(blockIdx.y);
  u.head0 = u.kv_head * group;
  u.there = group;
  // All segments of a row by one thread block, or each by its own.
  const bool whole = gridDim.z == 1;
  const int segment_keys = a.segment_blocks * kRows;
  u.first_key = u.segment * segment_keys;
  if (u.first_key >= keys) {
    cuda::wait_for_launch_before();
    return;
  }
  u.end_key = whole ? keys : min(keys, u.first_key + segment_keys);
  u.blocks = (u.end_key - u.first_key + kRows - 1) / kRows;
  u.fresh = early && u.end_key == keys ? keys - 1 - u.first_key : -1;
  u.alone = whole || keys <= segment_keys;
  __syncthreads();

  if (warp == kWarps) {
    Producer<P>{a,      &maps, u,
                memory, lane,  a.pages.table + u.sequence * a.pages.max_pages + u.first_key / kRows}
        .run(early);
    return;
  }

  if (early) cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int quad = lane / 4;
  const int pair = 2 * (lane % 4);  // this thread's heads: pair, pair + 1
  uint32_t q[kSteps][2];
  {
    const Bf16* from = a.q + u.row * a.ldq + static_cast<int64_t>(u.head0 + quad) * kD + pair;
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i)
      q[i / 2][i % 2] = quad < u.there ? __ldcg(reinterpret_cast<const unsigned int*>(from + 8 * i)) : 0U;
  }
  // Of the fresh key in the first half of the warp, of the fresh value's columns of this warp in the other.
  uint4 fresh = {0U, 0U, 0U, 0U};
  if (u.fresh >= 0) {
    const int chunk = lane < 16 ? lane : lane % 16 / 2 * 8 + 2 * warp + lane % 2;
    if ((lane < 16 && lane < kD / 8) || (lane >= 16 && lane < 16 + 2 * kPanels))
      fresh = __ldcg(reinterpret_cast<const uint4*>((lane < 16 ? a.fresh.k : a.fresh.v) + u.row * a.fresh.ld +
                                                    u.kv_head * kD + chunk * 8));
  }
  auto* weights = reinterpret_cast<uint4*>(bytes + P::kWeights);  // [block][2][lane]
  auto* terms = reinterpret_cast<float2*>(bytes + P::kTerms);     // [block][8][lane]: of l
  auto* maxima = reinterpret_cast<float2*>(bytes + P::kMaxima);   // [warp][4]
  const uint32_t full = memory + P::kFull;
  const uint32_t empty = memory + P::kEmpty;

  float m[2] = {kUndefined, kUndefined};
  float l[2] = {0.0F, 0.0F};
  float o[kPanels][4];
#pragma unroll
  for (int i = 0; i < kPanels * 4; ++i) o[i / 4][i % 4] = 0.0F;
  bool bad = false;
  // Of the segments before, merged.
  float sum_m[2] = {0.0F, 0.0F};
  float sum_l[2] = {0.0F, 0.0F};
  float sum_o[kPanels][4] = {};
  bool merged = false;
  const auto end_segment = [&] {
    bad = bad | (l[0] != l[0]) | (l[1] != l[1]);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) l[e] = l[e] + __shfl_xor_sync(0xFFFFFFFFU, l[e], step);
      const float to = merged ? fmaxf(sum_m[e], m[e]) : m[e];
      const QuickLowering lower(merged ? sum_m[e] - to : 0.0F);
      const QuickLowering lower_next(m[e] - to);
      sum_l[e] = merged ? lower(sum_l[e]) + lower_next(l[e]) : l[e];
      sum_m[e] = to;
#pragma unroll
      for (int i = 0; i < kPanels * 2; ++i) {
        float& sum = sum_o[i / 2][i % 2 * 2 + e];
        float& x = o[i / 2][i % 2 * 2 + e];
        sum = merged ? lower(sum) + lower_next(x) : x;
        x = 0.0F;
      }
      m[e] = kUndefined;
      l[e] = 0.0F;
    }
    merged = true;
  };

  int left = a.segment_blocks;
  for (int first = 0; first < u.blocks; first += kRound) {
    // Reads of a tile's last use come before the fresh key is stored into it: the copy between waited for
    // them. racecheck does not follow that, for one lane arrives for its warp; a short ring has such reads in
    // the round before.
    if constexpr (kSlots < 2 * kRound) {
      if (u.fresh >= 0 && first > 0 && first + kRound >= u.blocks) sync_round();
    }
    const int n = min(kRound, u.blocks - first);
    const int tile0 = 2 * first;
    float s[4][4];
    const int visible = u.end_key - u.first_key - (first + warp) * kRows;
    if (warp < n) {
      const int i = tile0 + warp;
      const int slot = i % kSlots;
      hopper::barrier_wait(full + slot * 8, i / kSlots & 1);
      const int row = u.fresh - (first + warp) * kRows;  // in this block
      if (u.fresh >= 0 && row < kRows) {
        if (lane < kD / 8)
          store_shared(chunk_address(memory + slot * P::kTileBytes + lane / 8 * kPanelBytes, row, lane % 8),
                       fresh);
        __syncwarp();
      }
      block_scores<kPanels>(s, memory + slot * P::kTileBytes, q, a.scale, lane);
      __syncwarp();
      if (lane == 0) hopper::barrier_arrive(empty + slot * 8, kWarps);
      float top[2];
      float least = INFINITY;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float x = -INFINITY;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float score = s[j / 2][j % 2 * 2 + e];
          const bool there = 8 * j + quad < visible;
          x = fmaxf(x, there ? score : -INFINITY);
          least = fminf(least, there ? score : INFINITY);
        }
        bad = bad | !(x < numerics::kMaxScore);
        top[e] = numerics::round_even(column_max(x));
      }
      bad = bad | !(least > -numerics::kMaxScore);
      if (quad == 0) maxima[warp * 4 + lane] = make_float2(top[0], top[1]);
    }
    sync_round();
    float2 tops[kRound];
#pragma unroll
    for (int j = 0; j < kRound; ++j) tops[j] = j < n ? maxima[j * 4 + lane % 4] : make_float2(m[0], m[1]);
    if (warp < n) {
      float p[4][4];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float to = m[e];
#pragma unroll
        for (int j = 0; j < kRound; ++j) to = j <= warp ? fmaxf(to, e == 0 ? tops[j].x : tops[j].y) : to;
        const uint32_t scale = (127U << 23) - integer_bits(to);
        const float lowest = numerics::kRoundEvenMagic + (to + kFloor);  // exact
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float score = s[j / 2][j % 2 * 2 + e];
          const float t = shifted(score);
          const float x = weight(score, t, scale);
          const bool none = (8 * j + quad >= visible) | (t < lowest);
          p[j / 2][j % 2 * 2 + e] = none ? 0.0F : x;
        }
      }
#pragma unroll
      for (int j = 0; j < 8; ++j)
        terms[(warp * 8 + j) * 32 + lane] = make_float2(p[j / 2][j % 2 * 2], p[j / 2][j % 2 * 2 + 1]);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        weights[(warp * 2 + h) * 32 + lane] = make_uint4(
            turned(pack(p[2 * h][0], p[2 * h][1])), turned(pack(p[2 * h][2], p[2 * h][3])),
            turned(pack(p[2 * h + 1][0], p[2 * h + 1][1])), turned(pack(p[2 * h + 1][2], p[2 * h + 1][3])));
    }
    sync_round();
    // The last block of values: zeros behind them, the fresh one. Each warp its columns, which it alone
    // reads.
    const auto complete_values = [&](uint32_t tile, int rows) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll 1
        for (int row = rows + lane / 2; row < kRows; row += 16)
          store_shared(chunk_address(tile + panel * kPanelBytes, row, 2 * warp + lane % 2),
                       make_uint4(0U, 0U, 0U, 0U));
      }
      if (u.fresh >= 0 && lane >= 16 && lane < 16 + 2 * kPanels)
        store_shared(chunk_address(tile + lane % 16 / 2 * kPanelBytes, rows - 1, 2 * warp + lane % 2), fresh);
      __syncwarp();
    };
    // Operands of a block of values, then the block's place in the ring is free.
    const auto load_values = [&](int j, uint32_t(&v)[4][kPanels][4]) {
      const int i = tile0 + n + j;
      const int slot = i % kSlots;
      hopper::barrier_wait(full + slot * 8, i / kSlots & 1);
      const uint32_t tile = memory + slot * P::kTileBytes;
      const int rows = u.end_key - u.first_key - (first + j) * kRows;
      if (rows < kRows || (u.fresh >= 0 && rows == kRows)) complete_values(tile, rows);
      const int row = lane % 8 + lane / 16 * 8;
      const uint32_t from = chunk_address(tile, row, 2 * warp + lane / 8 % 2);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          load_matrices_turned(v[step][panel], from + panel * kPanelBytes + step * 2048);
      }
    };
    const auto release_values = [&](int j) {
      __syncwarp();
      if (lane == 0) hopper::barrier_arrive(empty + (tile0 + n + j) % kSlots * 8, 1);
    };
    uint32_t v[kAhead + 1][4][kPanels][4];
    if constexpr (kAhead == 1) load_values(0, v[0]);
#pragma unroll
    for (int j = 0; j < kRound; ++j) {
      if (j >= n) break;
      if constexpr (kAhead == 1) {
        if (j + 1 < n) load_values(j + 1, v[(j + 1) % 2]);
      } else {
        load_values(j, v[0]);
      }
      uint4 p[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) p[h] = weights[(j * 2 + h) * 32 + lane];
      const float to[2] = {fmaxf(m[0], tops[j].x), fmaxf(m[1], tops[j].y)};
      bad = bad | (l[0] != l[0]) | (l[1] != l[1]);  // a NaN of any score
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const QuickLowering lower(m[e] - to[e]);
        m[e] = to[e];
        l[e] = lower(l[e]);
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          o[panel][e] = lower(o[panel][e]);
          o[panel][e + 2] = lower(o[panel][e + 2]);
        }
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint32_t low = step % 2 == 0 ? p[step / 2].x : p[step / 2].z;
        const uint32_t high = step % 2 == 0 ? p[step / 2].y : p[step / 2].w;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          mma_small(o[panel], v[kAhead * j % 2][step][panel], low, high);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float2 term = terms[(j * 8 + k) * 32 + lane];
        l[0] = l[0] + term.x;
        l[1] = l[1] + term.y;
      }
      release_values(j);
    }
    left -= kRound;
    if (left == 0) {
      end_segment();
      left = a.segment_blocks;
    }
  }

  if (left != a.segment_blocks) end_segment();
  if (bad) cuda::report(a.fault, static_cast<unsigned long long>(u.row));
  if (u.alone) {
    const float r[2] = {1.0F / sum_l[0], 1.0F / sum_l[1]};
    Bf16* to = a.out + u.row * a.ldo + static_cast<int64_t>(u.head0 + quad) * kD + 16 * warp + pair;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const uint32_t low = turned(pack(sum_o[panel][0] * r[0], sum_o[panel][1] * r[1]));
      const uint32_t high = turned(pack(sum_o[panel][2] * r[0], sum_o[panel][3] * r[1]));
      if (quad < u.there) {
        *reinterpret_cast<uint32_t*>(to + 64 * panel) = low;
        *reinterpret_cast<uint32_t*>(to + 64 * panel + 8) = high;
      }
    }
  } else {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (pair + e >= u.there) continue;
      float* partial =
          a.partial +
          ((static_cast<int64_t>(u.row) * a.heads + u.head0 + pair + e) * a.max_segments + u.segment) *
              (2 + kD);
      if (warp == 0 && quad == 0) {
        partial[0] = sum_m[e];
        partial[1] = sum_l[e];
      }
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        partial[2 + 64 * panel + 16 * warp + quad] = sum_o[panel][e];
        partial[2 + 64 * panel + 16 * warp + quad + 8] = sum_o[panel][e + 2];
      }
    }
  }
}

// Boxes of rows of all pages, however many there are: rows are counted in 31 bits.
inline CUtensorMap map_of_pages(const DecodeArguments& a, int rows) {
  static const cuda::EncodeTiled function = cuda::encode_tiled();
  CUtensorMap map{};
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(a.d), (1U << 31) - 1};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(a.d) * sizeof(Bf16)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult code = function(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a.pages.base, sizes, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS)
    throw cuda::Error(cudaErrorInvalidValue, "describing pages of keys and values to the copy engine");
  return map;
}

template <class P>
void launch_plan(const cuda::Context& context, const DecodeArguments& a, dim3 grid) {
  cuda::allow_shared<stream_kernel<P>>(P::kBytes, "attention");
  cuda::launch_early(context, "attention decode, bf16", stream_kernel<P>, grid, kThreads, P::kBytes, a,
                     PageMaps{map_of_pages(a, kRows), map_of_pages(a, 16)});
}

// The ring is as long as the thread blocks that a multiprocessor holds leave room for.
template <int kPanels>
void launch(const cuda::Context& context, const DecodeArguments& a, dim3 grid) {
  const int64_t blocks = static_cast<int64_t>(grid.x) * grid.y;
  if (blocks <= context.sms()) return launch_plan<Plan<kPanels, kPanels == 1 ? 16 : 12>>(context, a, grid);
  if (blocks <= 2 * context.sms()) return launch_plan<Plan<kPanels, kPanels == 1 ? 12 : 6>>(context, a, grid);
  launch_plan<Plan<kPanels, kPanels == 1 ? 5 : 6>>(context, a, grid);
}

// Whether this is the way for what `a` describes; it sets the rest of `a` then.
inline bool takes(DecodeArguments& a) {
  if (!a.vector || (a.d != 64 && a.d != 128) || a.heads / a.kv_heads > kHeads) return false;
  if (a.pages.page_stride % a.d != 0 || a.pages.k_offset % a.d != 0 || a.pages.v_offset % a.d != 0)
    return false;
  a.page_rows = a.pages.page_stride / a.d;
  a.k_row = a.pages.k_offset / a.d;
  a.v_row = a.pages.v_offset / a.d;
  return true;
}

// Whether segments are thread blocks of their own, to be merged by another launch: where there would be few
// thread blocks, or rounds do not end with segments.
inline bool splits(const cuda::Context& context, const DecodeArguments& a, int64_t rows) {
  return a.max_segments > 1 && (rows * a.kv_heads < 2 * context.sms() || a.segment_blocks % kRound != 0);
}

}  // namespace stream
}  // namespace lockstep::ops::attention
