// SPDX-License-Identifier: Apache-2.0
// Rollout: rows into pages, and attention of one query a sequence. A thread block takes a segment of one sequence
// and key/value head for all query heads that read it (16 at most): scores of all its blocks at once, then the
// running maxima, the weights, and the chains of o, each warp for its columns.
#include <algorithm>

#include "device/cuda/launch.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_bf16_tiles.cuh"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace attention {
namespace {

constexpr int kDecodeThreads = 256;
constexpr int kDecodeWarps = kDecodeThreads / 32;

// Blocks of keys that are in shared memory together.
template <int kPanels>
constexpr int kRoundBlocks = kPanels > 2 ? 4 : 8;

struct DecodeArguments {
  KvPagesCuda pages;
  const Bf16* q;
  const int32_t* sequence;
  const int32_t* keys;
  Bf16* out;
  float* partial;  // [row][head][segment][2 + d]: M, l, o
  int64_t ldq, ldo;
  int heads, kv_heads, d, head_tiles, segment_blocks, max_segments, round_blocks;
  float scale;
  bool vector;
  cuda::Fault fault;
};

// Columns 4c .. 4c + 3 of a group of 16: the two halves of an operand (the order in a group is free).
__device__ __forceinline__ uint2 load_four(const Bf16* row, int column, int d, bool there, bool vector) {
  uint2 both = {0U, 0U};
  if (!there || column >= d) return both;
  if (vector) return *reinterpret_cast<const uint2*>(row + column);
  both.x = row[column] | static_cast<uint32_t>(row[column + 1]) << 16;  // d is even
  if (column + 2 < d) both.y = row[column + 2] | static_cast<uint32_t>(row[column + 3]) << 16;
  return both;
}

__device__ __forceinline__ void mma_small(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// kWide: more than 8 query heads, rows 8 .. 15 of the small products are used.
template <int kPanels, bool kWide>
__global__ void __launch_bounds__(kDecodeThreads, kPanels == 1 ? 2 : 1) decode_kernel(const DecodeArguments a) {
  constexpr int kHeads = kWide ? 16 : 8;
  constexpr int kSteps = 4 * kPanels;
  constexpr int kTiles = kPanels;  // of 8 columns of o, a warp
  extern __shared__ __align__(1024) char memory[];
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
  const int keys = a.keys[row];
  const int segment_keys = a.segment_blocks * kRows;
  const int first_key = segment * segment_keys;
  if (first_key >= keys) return;
  const int end_key = min(keys, first_key + segment_keys);
  const bool alone = keys <= segment_keys;

  const int width = a.round_blocks * kRows;
  const int score_stride = width + 4;
  const int weight_stride = width + 8;
  char* values = memory;  // round_blocks tiles
  auto* scores = reinterpret_cast<float*>(values + a.round_blocks * kPanels * kPanelBytes);  // [kHeads]
  auto* weights = reinterpret_cast<Bf16*>(scores + kHeads * score_stride);                  // [kHeads]
  auto* maxima = reinterpret_cast<float*>(weights + kHeads * weight_stride);  // [kHeads][8]: M of a block
  float* before = maxima + kHeads * 8;                                         // [kHeads]: M before the round
  float* sum = before + kHeads;                                                // [kHeads]: l

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
  const int32_t* table = a.pages.table + a.sequence[row] * a.pages.max_pages;
  const int64_t head_offset = static_cast<int64_t>(kv_head) * kRows * a.d;
  if (thread < kHeads) before[thread] = kUndefined;
  float lane_sum = 0.0F;  // thread 8h + i < 8 * kHeads: lane i of head h
  float o[kTiles][4];
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) o[i / 4][i % 4] = 0.0F;
  bool bad = false;

  for (int key0 = first_key; key0 < end_key; key0 += width) {
    const int round_keys = min(width, end_key - key0);
    const int blocks = (round_keys + kRows - 1) / kRows;
    for (int block = 0; block < blocks; ++block) {
      const Bf16* page = a.pages.base + table[key0 / kRows + block] * a.pages.page_stride + head_offset;
      load_tile<kPanels>(values + block * kPanels * kPanelBytes, page + a.pages.v_offset, a.d, 0,
                         min(kRows, round_keys - block * kRows), a.d, a.vector, thread, kDecodeThreads);
    }
    copy_commit();
    // Scores: 8 keys a product.
#pragma unroll 4
    for (int tile = warp; tile < blocks * 8; tile += kDecodeWarps) {
      const Bf16* page = a.pages.base + table[key0 / kRows + tile / 8] * a.pages.page_stride + head_offset;
      const int key = 8 * tile + lane / 4;
      const Bf16* k = page + a.pages.k_offset + static_cast<int64_t>(key % kRows) * a.d;
      uint2 operand[kSteps];
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        operand[step] = load_four(k, 16 * step + 4 * (lane % 4), a.d, key < round_keys, a.vector);
      float dots[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) mma_small(dots, q[step], operand[step].x, operand[step].y);
      float* to = scores + lane / 4 * score_stride + 8 * tile + 2 * (lane % 4);
      *reinterpret_cast<float2*>(to) = make_float2(dots[0] * a.scale, dots[1] * a.scale);
      if (kWide)
        *reinterpret_cast<float2*>(to + 8 * score_stride) = make_float2(dots[2] * a.scale, dots[3] * a.scale);
    }
    __syncthreads();
    // The largest of each block: 4 threads a head and block.
    for (int item = thread / 4; item < kHeads * 8; item += kDecodeThreads / 4) {
      const int head = item / 8;
      const int block = item % 8;
      float top = -INFINITY;
      if (block < blocks && head < there) {
        for (int i = thread % 4; i < kRows; i += 4) {
          if (block * kRows + i >= round_keys) break;
          const float s = scores[head * score_stride + block * kRows + i];
          bad = bad || !(fabsf(s) < numerics::kMaxScore);
          top = fmaxf(top, s);
        }
      }
      top = quad_max(top);
      if (thread % 4 == 0) maxima[item] = numerics::round_even(top);
    }
    __syncthreads();
    // Running maxima.
    if (thread < kHeads) {
      float m = before[thread];
      for (int block = 0; block < blocks; ++block) {
        m = fmaxf(m, maxima[thread * 8 + block]);
        maxima[thread * 8 + block] = m;
      }
    }
    __syncthreads();
    for (int item = thread; item < kHeads * blocks * kRows; item += kDecodeThreads) {
      const int head = item / (blocks * kRows);
      const int key = item % (blocks * kRows);
      float p = 0.0F;
      if (head < there && key < round_keys) {
        const float s = scores[head * score_stride + key];
        const float m = maxima[head * 8 + key / kRows];
        const float t = shifted(s);
        const float x = weight(s, t, (127U << 23) - exponent_bits(m));
        p = (t - numerics::kRoundEvenMagic) - m < kFloor ? 0.0F : x;
      }
      scores[head * score_stride + key] = p;
      weights[head * weight_stride + key] = static_cast<Bf16>(pack(p, 0.0F) & 0xFFFFU);
    }
    copy_wait_all();
    __syncthreads();
    // Lanes of the sum.
    if (thread < 8 * kHeads) {
      const int head = thread / 8;
      float m = before[head];
      for (int block = 0; block < blocks; ++block) {
        const float to = maxima[head * 8 + block];
        if (to > m) lane_sum = lowered(lane_sum, m - to);
        m = to;
        const float* p = scores + head * score_stride + block * kRows + thread % 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) lane_sum = lane_sum + p[8 * i];
      }
    }
    // o: columns of tile warp + 8i.
    float m[2] = {before[lane / 4], kWide ? before[lane / 4 + kHeads - 8] : 0.0F};
    for (int block = 0; block < blocks; ++block) {
#pragma unroll
      for (int half = 0; half < (kWide ? 2 : 1); ++half) {
        const float to = maxima[(lane / 4 + 8 * half) * 8 + block];
        if (to > m[half]) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            o[i][2 * half] = lowered(o[i][2 * half], m[half] - to);
            o[i][2 * half + 1] = lowered(o[i][2 * half + 1], m[half] - to);
          }
        }
        m[half] = to;
      }
      const char* tile = values + block * kPanels * kPanelBytes;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const Bf16* from = weights + lane / 4 * weight_stride + block * kRows + 16 * step + 2 * (lane % 4);
        uint32_t p[4] = {*reinterpret_cast<const uint32_t*>(from), 0U, *reinterpret_cast<const uint32_t*>(from + 8),
                         0U};
        if (kWide) {
          p[1] = *reinterpret_cast<const uint32_t*>(from + 8 * weight_stride);
          p[3] = *reinterpret_cast<const uint32_t*>(from + 8 * weight_stride + 8);
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const int value_row = 16 * step + lane % 16;
          const uint32_t at = shared_address(tile + i * kPanelBytes + value_row * 128 +
                                             ((warp ^ (value_row & 7)) << 4));
          uint32_t b0;
          uint32_t b1;
          asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                       : "=r"(b0), "=r"(b1)
                       : "r"(at)
                       : "memory");
          mma_small(o[i], p, b0, b1);
        }
      }
    }
    __syncthreads();
    if (thread < kHeads) before[thread] = maxima[thread * 8 + blocks - 1];
    // The next round's first barrier comes before `before` is read.
  }

  if (bad) cuda::report(a.fault, static_cast<unsigned long long>(row));
  if (thread < 8 * kHeads) {
    float l = lane_sum;
#pragma unroll
    for (int width8 = 1; width8 < 8; width8 *= 2) l = l + __shfl_xor_sync(0xFFFFFFFFU, l, width8);
    if (thread % 8 == 0) sum[thread / 8] = l;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < (kWide ? 2 : 1); ++half) {
    const int head = lane / 4 + 8 * half;
    if (head >= there) continue;
    float* partial = a.partial + ((static_cast<int64_t>(row) * a.heads + head0 + head) * a.max_segments + segment) *
                                     (2 + a.d);
    if (!alone && warp == 0 && lane % 4 == 0) {
      partial[0] = before[head];
      partial[1] = sum[head];
    }
    const float r = 1.0F / sum[head];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int column = 64 * i + 8 * warp + 2 * (lane % 4);
      if (column >= a.d) continue;
      if (alone) {
        *reinterpret_cast<uint32_t*>(a.out + row * a.ldo + static_cast<int64_t>(head0 + head) * a.d + column) =
            pack(o[i][2 * half] * r, o[i][2 * half + 1] * r);
      } else {
        *reinterpret_cast<float2*>(partial + 2 + column) = make_float2(o[i][2 * half], o[i][2 * half + 1]);
      }
    }
  }
}

// Segments ascending, a thread a column; rows of one segment are done.
__global__ void __launch_bounds__(256) merge_kernel(const DecodeArguments a) {
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  const int segment_keys = a.segment_blocks * kRows;
  const int segments = (a.keys[row] + segment_keys - 1) / segment_keys;
  if (segments < 2 || column >= a.d) return;
  const float* partial = a.partial + (static_cast<int64_t>(row) * a.heads + head) * a.max_segments * (2 + a.d);
  float m = partial[0];
  float l = partial[1];
  float o = partial[2 + column];
  for (int segment = 1; segment < segments; ++segment) {
    const float* next = partial + segment * (2 + a.d);
    const float to = fmaxf(m, next[0]);
    l = lowered(l, m - to) + lowered(next[1], next[0] - to);
    o = lowered(o, m - to) + lowered(next[2 + column], next[0] - to);
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
  return pages.page_stride % 8 == 0 && pages.k_offset % 8 == 0 && pages.v_offset % 8 == 0 && aligned(pages.base);
}

template <int kPanels, bool kWide>
void launch_decode(const cuda::Context& context, DecodeArguments a, int64_t rows) {
  constexpr int kHeads = kWide ? 16 : 8;
  a.round_blocks = std::min(a.segment_blocks, kRoundBlocks<kPanels>);
  const int width = a.round_blocks * kRows;
  const int bytes = a.round_blocks * kPanels * kPanelBytes + kHeads * ((width + 4) * 4 + (width + 8) * 2 + 10 * 4);
  a.head_tiles = (a.heads / a.kv_heads + kHeads - 1) / kHeads;
  auto* kernel = decode_kernel<kPanels, kWide>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              "shared memory of attention");
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(a.kv_heads * a.head_tiles),
                  static_cast<unsigned>(a.max_segments));
  kernel<<<grid, kDecodeThreads, bytes, context.stream()>>>(a);
  cuda::check_launch("attention decode, bf16");
}

template <bool kWide>
void decode(const cuda::Context& context, const DecodeArguments& a, int64_t rows) {
  if (a.d <= 64) return launch_decode<1, kWide>(context, a, rows);
  if (a.d <= 128) return launch_decode<2, kWide>(context, a, rows);
  launch_decode<4, kWide>(context, a, rows);
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
  if (a.d % 8 == 0 && ld % 8 == 0 && attention::aligned(k) && attention::aligned(v) && attention::aligned(pages)) {
    a.items = rows * (a.width / 8);
    attention::write_kernel<uint4><<<cuda::blocks_for(a.items, 256), 256, 0, context.stream()>>>(a);
  } else {
    a.items = rows * a.width;
    attention::write_kernel<numerics::Bf16><<<cuda::blocks_for(a.items, 256), 256, 0, context.stream()>>>(a);
  }
  cuda::check_launch("keys and values into pages, bf16");
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
                                numerics::Bf16* out, int64_t ldo, const cuda::Fault& fault, int64_t segment) {
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
  if (a.max_segments > 1)
    a.partial = static_cast<float*>(context.scratch(attention_decode_bf16_scratch(shape, rows, max_keys, segment)));
  if (shape.heads / shape.kv_heads > 8) {
    attention::decode<true>(context, a, rows);
  } else {
    attention::decode<false>(context, a, rows);
  }
  if (a.max_segments > 1) {
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(a.heads));
    attention::merge_kernel<<<grid, 256, 0, context.stream()>>>(a);
    cuda::check_launch("attention decode, bf16: merge");
  }
}

}  // namespace lockstep::ops
