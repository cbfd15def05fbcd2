// SPDX-License-Identifier: Apache-2.0
// Forward over whole samples (training) and over runs of a paged sequence (prefill). A warpgroup takes 64
// query positions of one head, aligned to 64 in the sequence, and walks the blocks of keys; warpgroups of a
// thread block are heads of one group and share the keys.
#include <algorithm>

#include "device/cuda/launch.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_bf16_tiles.cuh"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace attention {
namespace {

struct ForwardArguments {
  AttentionSamplesCuda samples;  // not paged
  AttentionRunsCuda runs;        // paged
  KvPagesCuda pages;
  const Bf16* q;
  const Bf16* k;  // not paged: columns of the matrix of q
  const Bf16* v;
  int64_t ldq, ldo;
  Bf16* out;
  float* max_exponent;
  float* inverse_sum;
  int heads, kv_heads, d, head_tiles, segment_blocks;
  float scale;
  bool vector;
  cuda::Fault fault;
};

struct Run {
  int64_t first_row;
  int rows, first_position, sequence;
};

template <bool kPaged>
__device__ __forceinline__ Run run_of(const ForwardArguments& a, int i) {
  if constexpr (kPaged) {
    return {a.runs.first_row[i], a.runs.rows[i], a.runs.first_position[i], a.runs.sequence[i]};
  } else {
    return {a.samples.begin[i], a.samples.rows[i], 0, 0};
  }
}

// Keys and values of a block, for all threads of the thread block.
template <int kPanels, int kOut, int kThreads, bool kPaged>
__device__ __forceinline__ void load_keys(const ForwardArguments& a, const Run& run, int kv_head, int slice,
                                          int block, char* k, char* v, int thread) {
  const int there = min(kRows, run.first_position + run.rows - block * kRows);
  const Bf16* from_k;
  const Bf16* from_v;
  int64_t ld;
  if constexpr (kPaged) {
    const int64_t page = a.pages.table[run.sequence * a.pages.max_pages + block];
    const Bf16* base =
        a.pages.base + page * a.pages.page_stride + static_cast<int64_t>(kv_head) * kRows * a.d;
    from_k = base + a.pages.k_offset;
    from_v = base + a.pages.v_offset;
    ld = a.d;
  } else {
    const int64_t at = (run.first_row + static_cast<int64_t>(block) * kRows) * a.ldq + kv_head * a.d;
    from_k = a.k + at;
    from_v = a.v + at;
    ld = a.ldq;
  }
  load_tile<kPanels, kThreads>(k, from_k, ld, 0, there, a.d, a.vector, thread);
  const int first = slice * kOut * 64;
  load_tile<kOut, kThreads>(v, from_v + first, ld, 0, there, a.d - first, a.vector, thread);
}

// The sums of 64 rows over the keys of a segment; of a row, this thread holds columns 8j + 2c, + 1 for two
// rows (8 apart), and two of the eight lanes.
template <int kOut>
struct Sums {
  float m[2];
  float lanes[2][2];
  float o[kOut][32];
  bool bad[2];

  // Element i of a thread's 32: how much its column exceeds its row, but for the thread's own offsets.
  static __device__ __forceinline__ constexpr int offset_of(int i) {
    return 8 * (i / 4) + i % 2 - 8 * (i / 2 % 2);
  }

  __device__ __forceinline__ void reset() {
    m[0] = m[1] = kUndefined;
    lanes[0][0] = lanes[0][1] = lanes[1][0] = lanes[1][1] = 0.0F;
#pragma unroll
    for (int i = 0; i < kOut * 32; ++i) o[i / 32][i % 32] = 0.0F;
  }

  __device__ __forceinline__ void raise(const float (&to)[2]) {
    const Lowering lower[2] = {Lowering(m[0] - to[0]), Lowering(m[1] - to[1])};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      bad[row] = bad[row] | (lanes[row][0] != lanes[row][0]) | (lanes[row][1] != lanes[row][1]);
      lanes[row][0] = lower[row](lanes[row][0]);
      lanes[row][1] = lower[row](lanes[row][1]);
      m[row] = to[row];
    }
    if (__any_sync(0xFFFFFFFFU, lower[0].to_zero || lower[1].to_zero)) {
#pragma unroll
      for (int i = 0; i < kOut * 32; ++i) o[i / 32][i % 32] = lower[i / 2 % 2](o[i / 32][i % 32]);
    } else {
#pragma unroll
      for (int i = 0; i < kOut * 32; ++i) o[i / 32][i % 32] = o[i / 32][i % 32] * lower[i / 2 % 2].factor;
    }
  }

  // Raw dots of a block to weights, as operands of the product with v; lanes take them unrounded. diagonal:
  // the block holds the rows' own keys.
  __device__ __forceinline__ void weights(float (&dots)[32], float scale, bool diagonal, uint32_t (&p)[16]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
    const int row = 16 * warp + lane / 4;
    const int column = 2 * (lane % 4);
    if (diagonal) {
#pragma unroll
      for (int i = 0; i < 32; ++i) dots[i] = offset_of(i) > row - column ? -INFINITY : dots[i];
    }
    float top[4] = {dots[0], dots[1], dots[2], dots[3]};
#pragma unroll
    for (int i = 4; i < 32; ++i) top[i % 4] = fmaxf(top[i % 4], dots[i]);
    const float least = least_of(dots);
    float to[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float s = quad_max(fmaxf(top[2 * i], top[2 * i + 1])) * scale;
      bad[i] = bad[i] | !(s < numerics::kMaxScore);
      to[i] = fmaxf(m[i], numerics::round_even(s));
    }
    if (__any_sync(0xFFFFFFFFU, to[0] > m[0] || to[1] > m[1])) raise(to);
    const float floor = fmaxf(m[0], m[1]) + kFloor;
    const bool plain = least * scale >= fmaxf(floor, 1.0F - numerics::kMaxScore);
    const uint32_t bits[2] = {(127U << 23) - exponent_bits(m[0]), (127U << 23) - exponent_bits(m[1])};
    if (__all_sync(0xFFFFFFFFU, plain)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const float s = dots[i] * scale;
        dots[i] = weight(s, shifted(s), bits[i / 2 % 2]);
      }
    } else {
      weights_checked(dots, scale, diagonal, row, column, bits);
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) lanes[i / 2 % 2][i % 2] = lanes[i / 2 % 2][i % 2] + dots[i];
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i] = pack(dots[2 * i], dots[2 * i + 1]);
  }

  // With masked keys, scores below the floor or out of range.
  __device__ __forceinline__ void weights_checked(float (&dots)[32], float scale, bool diagonal, int row,
                                                  int column, const uint32_t (&bits)[2]) {
    const int visible = diagonal ? row - column : kRows;
    const int last =
        diagonal ? row / 16 * 2 + 1 : 7;  // columns from 8 * last + 8 on: masked for the whole warp
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j > last) {
        dots[4 * j] = dots[4 * j + 1] = dots[4 * j + 2] = dots[4 * j + 3] = 0.0F;
        continue;
      }
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) {
        const float s = dots[i] * scale;
        const float t = shifted(s);
        const bool masked = offset_of(i) > visible;
        bad[i / 2 % 2] = bad[i / 2 % 2] | !(masked | (fabsf(s) < numerics::kMaxScore));
        const bool none = masked | ((t - numerics::kRoundEvenMagic) - m[i / 2 % 2] < kFloor);
        const float p = weight(s, t, bits[i / 2 % 2]);
        dots[i] = none ? 0.0F : p;
      }
    }
  }
};

// Sums of the segments before, in shared memory: element i of a thread at [i * 128]. first: there are none.
template <int kOut>
__device__ __forceinline__ void merge(Sums<kOut>& next, float* merged, float (&m)[2], float (&l)[2],
                                      bool first) {
  const float l_next[2] = {fold_quad(next.lanes[0][0], next.lanes[0][1]),
                           fold_quad(next.lanes[1][0], next.lanes[1][1])};
  next.bad[0] = next.bad[0] | (l_next[0] != l_next[0]);
  next.bad[1] = next.bad[1] | (l_next[1] != l_next[1]);
  if (first) {
#pragma unroll
    for (int i = 0; i < kOut * 32; ++i) merged[i * kWarpgroup] = next.o[i / 32][i % 32];
    m[0] = next.m[0];
    m[1] = next.m[1];
    l[0] = l_next[0];
    l[1] = l_next[1];
    return;
  }
  const float to[2] = {fmaxf(m[0], next.m[0]), fmaxf(m[1], next.m[1])};
  const Lowering lower[2] = {Lowering(m[0] - to[0]), Lowering(m[1] - to[1])};
  const Lowering lower_next[2] = {Lowering(next.m[0] - to[0]), Lowering(next.m[1] - to[1])};
#pragma unroll
  for (int i = 0; i < kOut * 32; ++i) {
    float* at = merged + i * kWarpgroup;
    *at = lower[i / 2 % 2](*at) + lower_next[i / 2 % 2](next.o[i / 32][i % 32]);
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    l[row] = lower[row](l[row]) + lower_next[row](l_next[row]);
    m[row] = to[row];
  }
}

// kGroups: warpgroups. Shared memory: q of each warpgroup, two stages of keys and values (one where kPanels >
// 2), merged sums of each warpgroup where a sequence may have several segments.
template <int kPanels, int kOut, int kGroups, bool kPaged>
__global__ void __launch_bounds__(kGroups* kWarpgroup, kOut == 1 && kPanels == 1 ? 4 / kGroups : 1)
    forward_kernel(const ForwardArguments a) {
  constexpr int kThreads = kGroups * kWarpgroup;
  constexpr int kStages = kPanels > 2 ? 1 : 2;
  constexpr int kStageBytes = (kPanels + kOut) * kPanelBytes;
  extern __shared__ __align__(1024) char memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const int warpgroup = thread / kWarpgroup;
  const int own = thread % kWarpgroup;
  int index = static_cast<int>(blockIdx.x);
  const int head_tile = index % a.head_tiles;
  index /= a.head_tiles;
  const int kv_head = index % a.kv_heads;
  const Run run = run_of<kPaged>(a, index / a.kv_heads);
  const int end = run.first_position + run.rows;
  const int block = run.first_position / kRows + static_cast<int>(gridDim.y - 1 - blockIdx.y);
  if (run.rows == 0 || block * kRows >= end) return;
  const int group = a.heads / a.kv_heads;
  const int in_group = head_tile * kGroups + warpgroup;
  const bool active = in_group < group;
  const int head = kv_head * group + in_group;
  const int slice = static_cast<int>(blockIdx.z);
  const int first_column = slice * kOut * 64;
  // Rows of the tile that are queries, and the row of the matrices of the tile's row 0.
  const int low = max(0, run.first_position - block * kRows);
  const int high = min(kRows, end - block * kRows);
  const int64_t row0 = run.first_row + static_cast<int64_t>(block) * kRows - run.first_position;

  char* q = memory + warpgroup * kPanels * kPanelBytes;
  char* stages = memory + kGroups * kPanels * kPanelBytes;
  auto* merged =
      reinterpret_cast<float*>(stages + kStages * kStageBytes) + warpgroup * kOut * 32 * kWarpgroup + own;
  if (active)
    load_tile<kPanels, kWarpgroup>(q, a.q + row0 * a.ldq + head * a.d, a.ldq, low, high, a.d, a.vector, own);
  load_keys<kPanels, kOut, kThreads, kPaged>(a, run, kv_head, slice, 0, stages,
                                             stages + kPanels * kPanelBytes, thread);
  copy_commit();

  Sums<kOut> sums;
  sums.reset();
  sums.bad[0] = sums.bad[1] = false;
  float m[2] = {kUndefined, kUndefined};
  float l[2] = {0.0F, 0.0F};
  bool several = false;
  for (int key_block = 0; key_block <= block; ++key_block) {
    char* k = stages + (kStages == 1 ? 0 : key_block % 2 * kStageBytes);
    char* v = k + kPanels * kPanelBytes;
    copy_wait_all();
    fence_async();
    __syncthreads();
    if (kStages == 2 && key_block < block) {
      char* next = stages + (key_block + 1) % 2 * kStageBytes;
      load_keys<kPanels, kOut, kThreads, kPaged>(a, run, kv_head, slice, key_block + 1, next,
                                                 next + kPanels * kPanelBytes, thread);
      copy_commit();
    }
    if (active) {
      if (a.segment_blocks != 0 && key_block != 0 && key_block % a.segment_blocks == 0) {
        merge<kOut>(sums, merged, m, l, !several);
        sums.reset();
        several = true;
      }
      float dots[32];
      mma_fence();
      mma_tiles<kPanels>(dots, q, k);
      mma_commit();
      mma_wait<0>();
      uint32_t p[16];
      sums.weights(dots, a.scale, key_block == block, p);
      mma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint32_t operand[4] = {p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3]};
#pragma unroll
        for (int panel = 0; panel < kOut; ++panel)
          mma_down(sums.o[panel], operand, panel_descriptor(v) + panel * kStepPanel + step * kStepDown);
      }
      mma_commit();
      mma_wait<0>();
    }
    if (kStages == 1 && key_block < block) {
      __syncthreads();
      load_keys<kPanels, kOut, kThreads, kPaged>(a, run, kv_head, slice, key_block + 1, k, v, thread);
      copy_commit();
    }
  }
  if (!active) return;
  if (several) {
    merge<kOut>(sums, merged, m, l, false);
#pragma unroll
    for (int i = 0; i < kOut * 32; ++i) sums.o[i / 32][i % 32] = merged[i * kWarpgroup];
  } else {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      m[row] = sums.m[row];
      l[row] = fold_quad(sums.lanes[row][0], sums.lanes[row][1]);
    }
  }

  // Rows of the sample's padding are written as zeros. The tile of q becomes the tile of out (kOut <=
  // kPanels).
  const int padded = kPaged ? high : min(kRows, (high + 15) / 16 * 16);
  const int lane = own % 32;
  warpgroup_barrier(warpgroup);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = own / 32 * 16 + lane / 4 + 8 * i;
    const bool query = row >= low && row < high;
    const float r = 1.0F / l[i];
    if (query && (sums.bad[i] || l[i] != l[i] || !(fabsf(m[i]) <= numerics::kMaxScore)))
      cuda::report(a.fault, static_cast<unsigned long long>(row0 + row));
    if (slice == 0 && lane % 4 == 0 && row >= low && row < padded && a.max_exponent != nullptr) {
      a.max_exponent[(row0 + row) * a.heads + head] = query ? m[i] : 0.0F;
      a.inverse_sum[(row0 + row) * a.heads + head] = query ? r : 0.0F;
    }
#pragma unroll
    for (int panel = 0; panel < kOut; ++panel) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t both = pack(sums.o[panel][4 * j + 2 * i] * r, sums.o[panel][4 * j + 2 * i + 1] * r);
        *reinterpret_cast<uint32_t*>(q + panel * kPanelBytes + row * 128 + ((j ^ (row & 7)) << 4) +
                                     lane % 4 * 4) = query ? both : 0U;
      }
    }
  }
  warpgroup_barrier(warpgroup);
  for (int i = own; i < kRows * 8 * kOut; i += kWarpgroup) {
    const int row = i / (8 * kOut);
    const int chunk = i % (8 * kOut);
    if (row < low || row >= padded || first_column + chunk * 8 >= a.d) continue;
    const char* from = q + chunk / 8 * kPanelBytes + row * 128 + ((chunk % 8 ^ (row & 7)) << 4);
    Bf16* to = a.out + (row0 + row) * a.ldo + head * a.d + first_column + chunk * 8;
    if (a.vector) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int e = 0; e < 8 && first_column + chunk * 8 + e < a.d; ++e)
        to[e] = reinterpret_cast<const Bf16*>(from)[e];
    }
  }
}

template <int kPanels, int kOut, int kGroups, bool kPaged>
void launch_forward(const cuda::Context& context, ForwardArguments a, int64_t runs, int64_t max_blocks,
                    int64_t max_keys) {
  constexpr int kStages = kPanels > 2 ? 1 : 2;
  int64_t bytes = (kGroups * kPanels + kStages * (kPanels + kOut)) * kPanelBytes;
  if (a.segment_blocks != 0 && max_keys > a.segment_blocks * kRows)
    bytes += kGroups * kOut * 32 * kWarpgroup * static_cast<int64_t>(sizeof(float));
  a.head_tiles = (a.heads / a.kv_heads + kGroups - 1) / kGroups;
  const dim3 grid(static_cast<unsigned>(runs * a.kv_heads * a.head_tiles), static_cast<unsigned>(max_blocks),
                  cuda::blocks_for(a.d, kOut * 64));
  auto* kernel = forward_kernel<kPanels, kOut, kGroups, kPaged>;
  cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "shared memory of attention");
  kernel<<<grid, kGroups * kWarpgroup, bytes, context.stream()>>>(a);
  cuda::check_launch("attention forward, bf16");
}

template <bool kPaged>
void forward(const cuda::Context& context, const ForwardArguments& a, int64_t runs, int64_t max_blocks,
             int64_t max_keys) {
  if (runs == 0 || max_blocks == 0) return;
  if (a.d <= 64) return launch_forward<1, 1, 1, kPaged>(context, a, runs, max_blocks, max_keys);
  if (a.d <= 128) return launch_forward<2, 2, 1, kPaged>(context, a, runs, max_blocks, max_keys);
  launch_forward<4, 1, 1, kPaged>(context, a, runs, max_blocks, max_keys);
}

ForwardArguments arguments(const AttentionShape& shape, int64_t segment) {
  ForwardArguments a{};
  a.heads = static_cast<int>(shape.heads);
  a.kv_heads = static_cast<int>(shape.kv_heads);
  a.d = static_cast<int>(shape.head_size);
  a.scale = attention_score_scale(shape.head_size);
  a.segment_blocks = static_cast<int>(segment / kRows);
  return a;
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace
}  // namespace attention

void attention_forward_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                 const numerics::Bf16* qkv, int64_t ld, const AttentionSamplesCuda& samples,
                                 numerics::Bf16* out, float* max_exponent, float* inverse_sum,
                                 const cuda::Fault& fault, int64_t segment) {
  attention::ForwardArguments a = attention::arguments(shape, segment);
  a.samples = samples;
  a.q = qkv;
  a.k = qkv + shape.heads * shape.head_size;
  a.v = a.k + shape.kv_heads * shape.head_size;
  a.ldq = ld;
  a.ldo = shape.heads * shape.head_size;
  a.out = out;
  a.max_exponent = max_exponent;
  a.inverse_sum = inverse_sum;
  a.fault = fault;
  a.vector = a.d % 8 == 0 && ld % 8 == 0 && attention::aligned(qkv) && attention::aligned(out);
  attention::forward<false>(context, a, samples.count, (samples.max_rows + 63) / 64, samples.max_rows);
}

void attention_prefill_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                 const numerics::Bf16* q, int64_t ldq, const AttentionRunsCuda& runs,
                                 const KvPagesCuda& pages, numerics::Bf16* out, int64_t ldo,
                                 const cuda::Fault& fault, int64_t segment) {
  attention::ForwardArguments a = attention::arguments(shape, segment);
  a.runs = runs;
  a.pages = pages;
  a.q = q;
  a.ldq = ldq;
  a.ldo = ldo;
  a.out = out;
  a.fault = fault;
  a.vector = a.d % 8 == 0 && ldq % 8 == 0 && ldo % 8 == 0 && pages.page_stride % 8 == 0 &&
             pages.k_offset % 8 == 0 && pages.v_offset % 8 == 0 && attention::aligned(q) &&
             attention::aligned(out) && attention::aligned(pages.base);
  // A run that starts within a block may touch one more.
  const int64_t blocks = std::min((runs.max_rows + 126) / 64, (runs.max_keys + 63) / 64);
  attention::forward<true>(context, a, runs.count, runs.max_rows == 0 ? 0 : blocks, runs.max_keys);
}

}  // namespace lockstep::ops
