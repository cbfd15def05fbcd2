// SPDX-License-Identifier: Apache-2.0
// Rollout: rows into pages, and attention of one query a sequence: what stream::takes() by
// attention_decode_bf16_stream.cuh, here all others. A thread block takes a segment of one sequence and
// key/value head for all query heads that read it (16 at most): scores of 8 blocks at once, then their
// weights by the running maximum, then the chains of o, each warp for its columns.
#include <algorithm>

#include "core/check.h"
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_bf16_tiles.cuh"
#include "ops/attention/attention_decode_bf16_stream.cuh"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace attention {
namespace {

constexpr int kValueWarps = 4;   // that compute o
constexpr int kRoundBlocks = 8;  // of keys whose scores are in shared memory together
constexpr int kValueTiles = 4;   // of values in shared memory, a ring

// Columns 4c .. 4c + 3 of a group of 16: the two halves of an operand (the order in a group is free). From
// the L2: what another launch wrote lately may be stale in the L1 before wait_for_launch_before().
__device__ __forceinline__ uint2 load_four(const Bf16* row, int column, int d, bool there, bool vector) {
  uint2 both = {0U, 0U};
  if (!there || column >= d) return both;
  if (vector) return __ldcg(reinterpret_cast<const uint2*>(row + column));
  both.x = row[column] | static_cast<uint32_t>(row[column + 1]) << 16;  // d is even
  if (column + 2 < d) both.y = row[column + 2] | static_cast<uint32_t>(row[column + 3]) << 16;
  return both;
}

// kWide: more than 8 query heads, rows 8 .. 15 of the small products are used. Each of the three parts of a
// round keeps M of its heads itself. kWarps: 4, or 8 where there are few thread blocks. Where there are fresh
// keys, all but those is read while the launch before still runs.
template <int kPanels, bool kWide, bool kVector, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kPanels == 1 && kWarps == 4 ? 4 : 1)
    decode_kernel(const DecodeArguments a) {
  constexpr int kThreads = kWarps * 32;
  constexpr int kHalves = kWide ? 2 : 1;
  constexpr int kHeads = 8 * kHalves;
  constexpr int kSteps = 4 * kPanels;
  constexpr int kTileBytes = kPanels * kPanelBytes;
  constexpr int kSumFirst = kWarps == kValueWarps ? 0 : kValueWarps * 32;  // first thread of the sums
  // Tiles of 8 keys that are loaded together; more would take registers from other thread blocks.
  constexpr int kAtOnce = kWarps == kValueWarps && kPanels == 1 ? 4 : 8 / kPanels;
  extern __shared__ __align__(1024) char memory[];
  if (!kVector || a.fresh.k == nullptr) cuda::wait_for_launch_before();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int row = static_cast<int>(blockIdx.x);
  const int segment = static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.y) / a.head_tiles;
  const int group = a.heads / a.kv_heads;
  const int first_in_group = static_cast<int>(blockIdx.y) % a.head_tiles * kHeads;
  const int head0 = kv_head * group + first_in_group;
  const int there = min(kHeads, group - first_in_group);
  const int keys = __ldcg(a.keys + row);
  const int sequence = __ldcg(a.sequence + row);
  const int segment_keys = a.segment_blocks * kRows;
  const int first_key = segment * segment_keys;
  if (first_key >= keys) {
    cuda::wait_for_launch_before();
    return;
  }
  const int end_key = min(keys, first_key + segment_keys);
  const bool alone = keys <= segment_keys;
  const int32_t* table = a.pages.table + sequence * a.pages.max_pages;
  Bf16* base = a.pages.base + static_cast<int64_t>(kv_head) * kRows * a.d;
  // The position whose key and value are not in the pages yet, and where they are.
  const int fresh = a.fresh.k != nullptr ? keys - 1 : -1;
  const Bf16* fresh_k = a.fresh.k + row * a.fresh.ld + kv_head * a.d;
  const Bf16* fresh_v = a.fresh.v + row * a.fresh.ld + kv_head * a.d;

  const int width = a.round_blocks * kRows;
  const int stride = width + 4;
  char* values = memory;                                                       // kValueTiles tiles
  auto* scores = reinterpret_cast<float*>(values + kValueTiles * kTileBytes);  // [kHeads][stride]: s, then p
  float* maxima = scores + kHeads * stride;  // [kHeads][8]: largest n of a block
  float* sum = maxima + kHeads * 8;          // [kHeads]: l
  float* last = sum + kHeads;                // [kHeads]: M

  // A round: the keys from key0 on; lane i of each warp holds the page of block i.
  int key0 = first_key;
  int round_keys = 0;
  int blocks = 0;
  int32_t page = 0;
  const auto start_round = [&] {
    round_keys = min(width, end_key - key0);
    blocks = (round_keys + kRows - 1) / kRows;
    page = lane < blocks ? __ldcg(table + key0 / kRows + lane) : 0;
  };
  const auto page_of = [&](int block) {
    return base + __shfl_sync(0xFFFFFFFFU, page, block) * a.pages.page_stride;
  };
  const auto is_fresh = [&](int block) { return fresh >= 0 && (fresh - key0) / kRows == block; };
  const auto load_values = [&](int block) {
    const Bf16* v = page_of(block) + a.pages.v_offset;
    char* tile = values + block % kValueTiles * kTileBytes;
    if constexpr (kVector) {
      constexpr int kChunks = 8 * kPanels;
      constexpr int kStep = kThreads / kChunks;  // rows at a time
      const int chunk = thread % kChunks;
      const uint32_t to = shared_address(tile) + chunk / 8 * kPanelBytes;
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i) {
        const int r = thread / kChunks + i * kStep;
        const int key = block * kRows + r;
        const Bf16* from = key0 + key == fresh ? fresh_v : v + r * a.d;
        copy_16(to + r * 128 + ((chunk % 8 ^ (r & 7)) << 4), from + chunk * 8,
                chunk * 8 < a.d && key < round_keys);
      }
    } else {
      load_tile<kPanels, kThreads>(tile, v, a.d, 0, round_keys - block * kRows, a.d, a.vector, thread);
    }
  };
  uint2 operand[kAtOnce][kSteps];  // keys
  const auto load_keys = [&](int block, int tile) {
    const Bf16* k = page_of(block) + a.pages.k_offset;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int key = 8 * (tile + i) + lane / 4;
      const Bf16* from = key0 + block * kRows + key == fresh ? fresh_k : k + key * a.d;
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        operand[i][step] = load_four(from, 16 * step + 4 * (lane % 4), a.d, block * kRows + key < round_keys,
                                     kVector || a.vector);
    }
  };

  start_round();
  bool keys_there = false;
  if constexpr (kVector) {
    keys_there = warp < blocks && !is_fresh(warp);
    if (keys_there) load_keys(warp, 0);
    for (int block = 0; block < min(kValueTiles, blocks); ++block) {
      if (!is_fresh(block)) load_values(block);
    }
    cuda::wait_for_launch_before();
  }
  cuda::let_next_launch_start();
  for (int block = 0; block < kValueTiles; ++block) {
    if (block < blocks && (!kVector || is_fresh(block))) load_values(block);
    if (block % 2 == 1) copy_commit();
  }

  // Rows of q as operands.
  uint32_t q[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = lane / 4 + 8 * half;
      const uint2 both = load_four(a.q + row * a.ldq + static_cast<int64_t>(head0 + head) * a.d,
                                   16 * step + 4 * (lane % 4), a.d, head < there, a.vector);
      q[step][half] = both.x;
      q[step][half + 2] = both.y;
    }
  }
  // The fresh row goes into its page for the steps to come.
  if (kVector && fresh >= first_key && fresh < end_key && first_in_group == 0 && thread < a.d / 4) {
    const int column = thread % (a.d / 8) * 8;
    const bool is_value = thread >= a.d / 8;
    Bf16* to = base + __ldcg(table + fresh / kRows) * a.pages.page_stride + fresh % kRows * a.d + column;
    *reinterpret_cast<uint4*>(to + (is_value ? a.pages.v_offset : a.pages.k_offset)) =
        __ldcg(reinterpret_cast<const uint4*>((is_value ? fresh_v : fresh_k) + column));
  }
  constexpr int kHeadThreads = kThreads / 8;  // a head's, for the weights
  const int sum_thread = thread - kSumFirst;  // 8h + i: lane i of head h
  const bool sums = sum_thread >= 0 && sum_thread < 8 * kHeads;
  float weight_m[kHalves];  // of head thread / kHeadThreads + 8 * half
  float value_m[kHalves];   // of head lane / 4 + 8 * half
  float lane_m = kUndefined;
  float lane_sum = 0.0F;
  float o[kPanels][2][4];
#pragma unroll
  for (int half = 0; half < kHalves; ++half) weight_m[half] = value_m[half] = kUndefined;
#pragma unroll
  for (int i = 0; i < kPanels * 8; ++i) o[i / 8][i / 4 % 2][i % 4] = 0.0F;
  bool bad = false;

  for (;;) {
    // Scores: a warp a block, 8 keys a product.
    for (int block = warp; block < blocks; block += kWarps) {
      const bool full = (block + 1) * kRows <= round_keys;
      float top[2] = {-INFINITY, -INFINITY};
      float least = INFINITY;
#pragma unroll
      for (int tile = 0; tile < 8; ++tile) {
        if (tile == 0 ? !keys_there : tile % kAtOnce == 0) load_keys(block, tile);
        float dots[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          mma_small(dots, q[step], operand[tile % kAtOnce][step].x, operand[tile % kAtOnce][step].y);
        const int column = block * kRows + 8 * tile + 2 * (lane % 4);
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const float s[2] = {dots[2 * half] * a.scale, dots[2 * half + 1] * a.scale};
          *reinterpret_cast<float2*>(scores + (lane / 4 + 8 * half) * stride + column) =
              make_float2(s[0], s[1]);
          if (full) {
            top[half] = fmaxf(top[half], fmaxf(s[0], s[1]));
            least = fminf(least, fminf(s[0], s[1]));
          } else {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const bool visible = column + e < round_keys;
              top[half] = fmaxf(top[half], visible ? s[e] : -INFINITY);
              least = fminf(least, visible ? s[e] : INFINITY);
            }
          }
        }
      }
      keys_there = false;
      bad = bad | !(least > -numerics::kMaxScore);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        bad = bad | !(top[half] < numerics::kMaxScore);
        const float n = numerics::round_even(quad_max(top[half]));
        if (lane % 4 == 0) maxima[(lane / 4 + 8 * half) * 8 + block] = n;
      }
    }
    __syncthreads();
    // Weights.
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int head = thread / kHeadThreads + 8 * half;
      float m = weight_m[half];
      for (int block = 0; block < blocks; ++block) {
        m = fmaxf(m, maxima[head * 8 + block]);
        const uint32_t bits = (127U << 23) - exponent_bits(m);
        const float lowest = numerics::kRoundEvenMagic + (m + kFloor);  // exact
#pragma unroll
        for (int i = 0; i < kRows / kHeadThreads; ++i) {
          const int key = block * kRows + thread % kHeadThreads + kHeadThreads * i;
          const float s = scores[head * stride + key];
          const float t = shifted(s);
          const float x = weight(s, t, bits);
          const bool none = (key >= round_keys) | (t < lowest);
          scores[head * stride + key] = none ? 0.0F : x;
        }
      }
      weight_m[half] = m;
    }
    __syncthreads();
    // Lanes of the sum.
    if (sums) {
      const int head = sum_thread / 8;
      for (int block = 0; block < blocks; ++block) {
        const float to = fmaxf(lane_m, maxima[head * 8 + block]);
        bad = bad | (lane_sum != lane_sum);  // a NaN of any score
        lane_sum = Lowering(lane_m - to)(lane_sum);
        lane_m = to;
        const float* p = scores + head * stride + block * kRows + sum_thread % 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) lane_sum = lane_sum + p[8 * i];
      }
    }
    // o: two tiles of 8 columns a warp and panel.
    for (int pair = 0; 2 * pair < blocks; ++pair) {
      copy_wait<1>();
      __syncthreads();
      for (int block = 2 * pair; block < (warp < kValueWarps ? min(2 * pair + 2, blocks) : 0); ++block) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const float to = fmaxf(value_m[half], maxima[(lane / 4 + 8 * half) * 8 + block]);
          const Lowering lower(value_m[half] - to);
#pragma unroll
          for (int i = 0; i < kPanels * 4; ++i) {
            float& x = o[i / 4][i / 2 % 2][2 * half + i % 2];
            x = lower(x);
          }
          value_m[half] = to;
        }
        const uint32_t tile = shared_address(values + block % kValueTiles * kTileBytes);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          uint32_t p[4] = {0U, 0U, 0U, 0U};
#pragma unroll
          for (int half = 0; half < kHalves; ++half) {
            const float* from =
                scores + (lane / 4 + 8 * half) * stride + block * kRows + 16 * step + 2 * (lane % 4);
            const float2 low = *reinterpret_cast<const float2*>(from);
            const float2 high = *reinterpret_cast<const float2*>(from + 8);
            p[half] = pack(low.x, low.y);
            p[half + 2] = pack(high.x, high.y);
          }
          const int value_row = 16 * step + lane % 16;
          const uint32_t at = tile + value_row * 128 + ((2 * warp + lane / 16) ^ (value_row & 7)) * 16;
#pragma unroll
          for (int panel = 0; panel < kPanels; ++panel) {
            uint32_t v[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                         : "r"(at + panel * kPanelBytes)
                         : "memory");
            mma_small(o[panel][0], p, v[0], v[1]);
            mma_small(o[panel][1], p, v[2], v[3]);
          }
        }
      }
      __syncthreads();
      for (int block = 2 * pair + 4; block < min(2 * pair + 6, blocks); ++block) load_values(block);
      copy_commit();
    }
    key0 += width;
    if (key0 >= end_key) break;
    start_round();
    for (int block = 0; block < kValueTiles; ++block) {
      if (block < blocks) load_values(block);
      if (block % 2 == 1) copy_commit();
    }
  }

  if (bad | (lane_sum != lane_sum)) cuda::report(a.fault, static_cast<unsigned long long>(row));
  if (sums) {
    float l = lane_sum;
#pragma unroll
    for (int step = 1; step < 8; step *= 2) l = l + __shfl_xor_sync(0xFFFFFFFFU, l, step);
    if (sum_thread % 8 == 0) {
      sum[sum_thread / 8] = l;
      last[sum_thread / 8] = lane_m;
    }
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int head = lane / 4 + 8 * half;
    if (head >= there || warp >= kValueWarps) continue;
    float* partial =
        a.partial +
        ((static_cast<int64_t>(row) * a.heads + head0 + head) * a.max_segments + segment) * (2 + a.d);
    if (!alone && warp == 0 && lane % 4 == 0) {
      partial[0] = last[head];
      partial[1] = sum[head];
    }
    const float r = 1.0F / sum[head];
#pragma unroll
    for (int i = 0; i < kPanels * 2; ++i) {
      const float x = o[i / 2][i % 2][2 * half];
      const float y = o[i / 2][i % 2][2 * half + 1];
      const int column = i / 2 * 64 + (2 * warp + i % 2) * 8 + 2 * (lane % 4);
      if (column >= a.d) continue;
      if (alone) {
        *reinterpret_cast<uint32_t*>(a.out + row * a.ldo + static_cast<int64_t>(head0 + head) * a.d +
                                     column) = pack(x * r, y * r);
      } else {
        *reinterpret_cast<float2*>(partial + 2 + column) = make_float2(x, y);
      }
    }
  }
}

// Segments ascending, a thread a column; rows of one segment are done.
__global__ void __launch_bounds__(256) merge_kernel(const DecodeArguments a) {
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  const int segment_keys = a.segment_blocks * kRows;
  const int segments = (a.keys[row] + segment_keys - 1) / segment_keys;
  if (segments < 2 || column >= a.d) return;
  const float* partial =
      a.partial + (static_cast<int64_t>(row) * a.heads + head) * a.max_segments * (2 + a.d);
  float m = partial[0];
  float l = partial[1];
  float o = partial[2 + column];
  for (int segment = 1; segment < segments; ++segment) {
    const float* next = partial + segment * (2 + a.d);
    const float to = fmaxf(m, next[0]);
    const Lowering lower(m - to);
    const Lowering lower_next(next[0] - to);
    l = lower(l) + lower_next(next[1]);
    o = lower(o) + lower_next(next[2 + column]);
    m = to;
  }
  const float r = 1.0F / l;
  a.out[row * a.ldo + static_cast<int64_t>(head) * a.d + column] = numerics::float_to_bfloat16(o * r);
}

struct WriteArguments {
  KvPagesCuda pages;
  const Bf16* k;
  const Bf16* v;
  const int32_t* sequence;
  const int32_t* position;
  int64_t ld, items;
  int width, d;
};

// `T`: what a thread moves, 16 bytes or 1 element.
template <typename T>
__global__ void __launch_bounds__(256) write_kernel(const WriteArguments a) {
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  constexpr int kElements = sizeof(T) / sizeof(Bf16);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (item >= a.items) return;
  const int per_row = a.width / kElements;
  const int64_t row = item / per_row;
  const int column = static_cast<int>(item % per_row) * kElements;
  const int sequence = a.sequence[row];
  if (sequence < 0) return;
  const int position = a.position[row];
  const int64_t page = a.pages.table[sequence * a.pages.max_pages + position / kRows];
  Bf16* to = a.pages.base + page * a.pages.page_stride +
             (static_cast<int64_t>(column / a.d) * kRows + position % kRows) * a.d + column % a.d;
  *reinterpret_cast<T*>(to + a.pages.k_offset) = *reinterpret_cast<const T*>(a.k + row * a.ld + column);
  *reinterpret_cast<T*>(to + a.pages.v_offset) = *reinterpret_cast<const T*>(a.v + row * a.ld + column);
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}
bool aligned(const KvPagesCuda& pages) {
  return pages.page_stride % 8 == 0 && pages.k_offset % 8 == 0 && pages.v_offset % 8 == 0 &&
         aligned(pages.base);
}

template <int kPanels, bool kWide, bool kVector, int kWarps>
void launch_decode(const cuda::Context& context, const DecodeArguments& a, dim3 grid) {
  constexpr int kHeads = kWide ? 16 : 8;
  const auto bytes = [](int round_blocks) {
    return kValueTiles * kPanels * kPanelBytes + kHeads * (round_blocks * kRows + 4 + 10) * 4;
  };
  constexpr auto* kKernel = decode_kernel<kPanels, kWide, kVector, kWarps>;
  // For all launches: a recorded one may need more than the one at hand.
  cuda::allow_shared<kKernel>(bytes(kRoundBlocks), "attention");
  cuda::launch_early(context, "attention decode, bf16", kKernel, grid, kWarps * 32,
                     static_cast<size_t>(bytes(a.round_blocks)), a);
}

template <int kPanels, bool kWide>
void decode(const cuda::Context& context, DecodeArguments a, int64_t rows) {
  a.round_blocks = std::min(a.segment_blocks, kRoundBlocks);
  constexpr int kHeads = kWide ? 16 : 8;
  a.head_tiles = (a.heads / a.kv_heads + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(a.kv_heads * a.head_tiles),
                  static_cast<unsigned>(a.max_segments));
  const bool few = rows * a.kv_heads * a.head_tiles <= context.sms();
  if (!a.vector) return launch_decode<kPanels, kWide, false, 4>(context, a, grid);
  if (few) return launch_decode<kPanels, kWide, true, 8>(context, a, grid);
  launch_decode<kPanels, kWide, true, 4>(context, a, grid);
}

template <bool kWide>
void decode(const cuda::Context& context, const DecodeArguments& a, int64_t rows) {
  if (a.d <= 64) return decode<1, kWide>(context, a, rows);
  if (a.d <= 128) return decode<2, kWide>(context, a, rows);
  decode<4, kWide>(context, a, rows);
}

// Blocks of a segment as the kernel counts them: no more than there are.
int64_t blocks_of_segment(int64_t max_keys, int64_t segment) {
  const int64_t blocks = (max_keys + kRows - 1) / kRows;
  return segment == 0 ? blocks : std::min(blocks, segment / kRows);
}

}  // namespace
}  // namespace attention

void write_kv_pages_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                              const numerics::Bf16* k, const numerics::Bf16* v, int64_t ld, int64_t rows,
                              const int32_t* sequence, const int32_t* position, const KvPagesCuda& pages) {
  if (rows == 0) return;
  attention::WriteArguments a{pages, k, v, sequence, position, ld, 0, 0, 0};
  a.d = static_cast<int>(shape.head_size);
  a.width = static_cast<int>(shape.kv_heads * shape.head_size);
  if (a.d % 8 == 0 && ld % 8 == 0 && attention::aligned(k) && attention::aligned(v) &&
      attention::aligned(pages)) {
    a.items = rows * (a.width / 8);
    cuda::launch_early(context, "keys and values into pages, bf16", attention::write_kernel<uint4>,
                       cuda::blocks_for(a.items, 256), 256, 0, a);
  } else {
    a.items = rows * a.width;
    cuda::launch_early(context, "keys and values into pages, bf16", attention::write_kernel<numerics::Bf16>,
                       cuda::blocks_for(a.items, 256), 256, 0, a);
  }
}

int64_t attention_decode_bf16_scratch(const AttentionShape& shape, int64_t rows, int64_t max_keys,
                                      int64_t segment) {
  if (max_keys == 0) return 0;
  const int64_t keys = attention::blocks_of_segment(max_keys, segment) * attention::kRows;
  const int64_t segments = (max_keys + keys - 1) / keys;
  return segments < 2 ? 0 : rows * shape.heads * segments * (2 + shape.head_size) * 4;
}

void attention_decode_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                const numerics::Bf16* q, int64_t ldq, int64_t rows, const int32_t* sequence,
                                const int32_t* keys, int64_t max_keys, const KvPagesCuda& pages,
                                numerics::Bf16* out, int64_t ldo, const cuda::Fault& fault, int64_t segment,
                                const FreshKeysCuda& fresh) {
  if (rows == 0 || max_keys == 0) return;
  attention::DecodeArguments a{};
  a.pages = pages;
  a.q = q;
  a.sequence = sequence;
  a.keys = keys;
  a.out = out;
  a.ldq = ldq;
  a.ldo = ldo;
  a.heads = static_cast<int>(shape.heads);
  a.kv_heads = static_cast<int>(shape.kv_heads);
  a.d = static_cast<int>(shape.head_size);
  a.segment_blocks = static_cast<int>(attention::blocks_of_segment(max_keys, segment));
  const int64_t segment_keys = a.segment_blocks * attention::kRows;
  a.max_segments = static_cast<int>((max_keys + segment_keys - 1) / segment_keys);
  a.scale = attention_score_scale(shape.head_size);
  a.vector = a.d % 8 == 0 && ldq % 8 == 0 && attention::aligned(q) && attention::aligned(pages);
  a.fault = fault;
  a.fresh = fresh;
  if (fresh.k != nullptr) {
    LOCKSTEP_CHECK(a.vector && fresh.ld % 8 == 0 && attention::aligned(fresh.k) &&
                   attention::aligned(fresh.v));
  }
  const bool streams = attention::stream::takes(a);
  const bool split = streams ? attention::stream::splits(context, a, rows) : a.max_segments > 1;
  if (split)
    a.partial =
        static_cast<float*>(context.scratch(attention_decode_bf16_scratch(shape, rows, max_keys, segment)));
  if (streams) {
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(a.kv_heads),
                    static_cast<unsigned>(split ? a.max_segments : 1));
    if (a.d == 64) {
      attention::stream::launch<1>(context, a, grid);
    } else {
      attention::stream::launch<2>(context, a, grid);
    }
  } else if (shape.heads / shape.kv_heads > 8) {
    attention::decode<true>(context, a, rows);
  } else {
    attention::decode<false>(context, a, rows);
  }
  if (split) {
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(a.heads));
    cuda::launch_early(context, "attention decode, bf16: merge", attention::merge_kernel, grid, 256, 0, a);
  }
}

}  // namespace lockstep::ops
