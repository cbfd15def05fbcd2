// SPDX-License-Identifier: Apache-2.0
// Forward attention in binary32. A block takes a tile of (query, query head of the group) pairs of one
// sequence and key/value head, and goes over its key blocks in order; so a group shares every load of keys
// and values, also when a single query is decoded.
#include <algorithm>

#include "core/check.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_fp32_tile.cuh"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace attention_fp32 {
namespace {

using numerics::scale_by_pow2;

// Keys or values of one key/value head: rows of one matrix, or pages.
struct KeyValues {
  const float* k;
  const float* v;
  int64_t ld;            // between positions
  const int32_t* table;  // null: position j of a sequence is row first_row + j
  int64_t max_pages, page_stride, head_stride;
};

struct Forward {
  int heads, group, d;
  float scale;
  const float* q;
  int64_t ldq;
  KeyValues kv;
  AttentionRows rows;
  float* out;
  int64_t ldo;
  float* max_exponent;
  float* inverse_sum;
  bool vector;
  cuda::Fault fault;
  float* partial;  // null, or [sequence][head][segment][M, l, o of d columns]: a block takes one segment
  int segments;
};

constexpr int kUndefined = -(1 << 28);  // M before the first key
constexpr int kSegmentBlocks = static_cast<int>(numerics::kAttentionSegment / numerics::kKeyBlock);

__device__ __forceinline__ float* partial_at(const Forward& a, int sequence, int head, int segment) {
  return a.partial + ((int64_t{sequence} * a.heads + head) * a.segments + segment) * (a.d + 2);
}

// kR * 16 pairs a block; heads of up to kChunks * 64 columns.
template <int kR, int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks == 4 ? 1 : 2) forward_kernel(const Forward a) {
  constexpr int kRows = kR * 16;
  // Sums of weights: thread t has lane t % 8 of rows t / 8 + 32 h.
  constexpr int kLaneRows = kR == 1 ? 1 : kR / 2;
  extern __shared__ float4 shared[];
  float* tile_q = reinterpret_cast<float*>(shared);
  float* tile_k = tile_q + kRows * kPitch;
  float* tile_v = tile_k + kTileFloats;
  float* weights = tile_v + kTileFloats;
  int* row_max = reinterpret_cast<int*>(weights + kRows * kPitch);
  int* row_drop = row_max + kRows;  // M before minus M after the block
  float* row_inverse = reinterpret_cast<float*>(row_drop + kRows);

  const int sequence = static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int rows = a.rows.rows == nullptr ? 1 : a.rows.rows[sequence];
  const bool apart = a.partial != nullptr;
  const int first_pair = apart ? 0 : static_cast<int>(blockIdx.x) * kRows;
  const int pairs = min(kRows, rows * a.group - first_pair);
  if (pairs <= 0) return;
  const int64_t first_row = a.rows.first_row[sequence];
  const int first_position = a.rows.first_position == nullptr ? 0 : a.rows.first_position[sequence];
  const auto row_of = [&](int pair) { return first_row + (first_pair + pair) / a.group; };
  const auto head_of = [&](int pair) { return kv_head * a.group + (first_pair + pair) % a.group; };
  // Pairs past the end see nothing.
  const auto position_of = [&](int pair) {
    return pair < pairs ? first_position + (first_pair + pair) / a.group : -1;
  };
  const int chunks = kChunks == 1 ? 1 : (a.d + kWidth - 1) / kWidth;

  int position[kR], max_now[kR], max_all[kR];
  float o[kChunks][kR][4], o_all[kChunks][kR][4];
  float lane_now[kLaneRows], l_all[kLaneRows];
  int l_max[kLaneRows];
#pragma unroll
  for (int r = 0; r < kR; ++r) position[r] = position_of(ty() + 16 * r), max_all[r] = kUndefined;
  const bool has_lane = kR > 1 || threadIdx.x < 128;
  const int lane_row = static_cast<int>(threadIdx.x) >> 3, lane = static_cast<int>(threadIdx.x) & 7;

  const int first_block = apart ? static_cast<int>(blockIdx.x) * kSegmentBlocks : 0;
  const int last_block = apart ? min(position_of(pairs - 1) / kBlock, first_block + kSegmentBlocks - 1)
                               : position_of(pairs - 1) / kBlock;
  if (first_block > last_block) return;
  for (int block = first_block; block <= last_block; ++block) {
    const int first_key = block * kBlock;
    const int keys = min(kBlock, position_of(pairs - 1) + 1 - first_key);
    if (block % kSegmentBlocks == 0) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) clear(o[c]);
#pragma unroll
      for (int r = 0; r < kR; ++r) max_now[r] = kUndefined;
#pragma unroll
      for (int h = 0; h < kLaneRows; ++h) lane_now[h] = 0.0F;
    }
    const float* k;
    const float* v;
    if (a.kv.table != nullptr) {
      const int64_t at =
          a.kv.table[sequence * a.kv.max_pages + block] * a.kv.page_stride + kv_head * a.kv.head_stride;
      k = a.kv.k + at, v = a.kv.v + at;
    } else {
      const int64_t at = (first_row + first_key) * a.kv.ld + kv_head * a.d;
      k = a.kv.k + at, v = a.kv.v + at;
    }

    float s[kR][4];
    clear(s);
    for (int c = 0; c < chunks; ++c) {
      const int width = chunk_width(a.d, c);
      __syncthreads();
      if (chunks > 1 || block == first_block) {
        load_tile(tile_q, pairs, width, a.vector,
                  [&](int r) { return a.q + row_of(r) * a.ldq + head_of(r) * a.d + c * kWidth; });
      }
      load_tile(tile_k, keys, width, a.vector, [&](int r) { return k + r * a.kv.ld + c * kWidth; });
      if (c == 0) load_tile(tile_v, keys, width, a.vector, [&](int r) { return v + r * a.kv.ld; });
      __syncthreads();
      dot_tile<kR>(s, tile_q, tile_k, width);
    }

    int limit[kR];
    bool all = true, bad = false;
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      limit[r] = position[r] - first_key;
      all = all && limit[r] >= kBlock - 1;
      int largest = kUndefined;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (tx() + 16 * c > limit[r]) continue;
        s[r][c] = s[r][c] * a.scale;
        if (!(fabsf(s[r][c]) < numerics::kMaxScore)) bad = true, s[r][c] = 0.0F;
        largest = max(largest, static_cast<int>(numerics::round_even(s[r][c])));
      }
#pragma unroll
      for (int width = 1; width < 16; width *= 2)
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, width));
      const int drop = largest > max_now[r] ? max_now[r] - largest : 0;
      max_now[r] = max(max_now[r], largest);
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[c][r][e] = scale_by_pow2(o[c][r][e], drop);
      if (tx() == 0) row_max[ty() + 16 * r] = max_now[r], row_drop[ty() + 16 * r] = drop;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float n = numerics::round_even(s[r][c]);
        const int e = static_cast<int>(n) - max_now[r];
        const bool none = tx() + 16 * c > limit[r] || e < numerics::kWeightFloor;
        weights[(ty() + 16 * r) * kPitch + tx() + 16 * c] =
            none ? 0.0F : scale_by_pow2(numerics::exp2_fraction(s[r][c] - n), e);
      }
    }
    if (bad) cuda::report(a.fault);
    __syncthreads();

    if (has_lane) {
      // A masked key's +0 changes no sum of weights: they are never -0.
#pragma unroll
      for (int h = 0; h < kLaneRows; ++h) {
        const int row = lane_row + 32 * h;
        float sum = scale_by_pow2(lane_now[h], row_drop[row]);
        for (int j = lane; j < kBlock; j += numerics::kSoftmaxLanes) sum = sum + weights[row * kPitch + j];
        lane_now[h] = sum;
      }
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c >= chunks) break;
      if (c > 0) {
        __syncthreads();
        load_tile(tile_v, keys, chunk_width(a.d, c), a.vector,
                  [&](int r) { return v + r * a.kv.ld + c * kWidth; });
        __syncthreads();
      }
      weighted_sum<kR>(o[c], weights, tile_v, limit, all);
    }

    if ((block + 1) % kSegmentBlocks == 0 || block == last_block) {  // the segment ends
      const int segment_first = block / kSegmentBlocks * kSegmentBlocks * kBlock;
      const bool alone = segment_first == first_block * kBlock;  // nothing to merge with
#pragma unroll
      for (int r = 0; r < kR; ++r) {
        if (position[r] < segment_first) continue;
        const int largest = max(max_all[r], max_now[r]);
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            o_all[c][r][e] = alone ? o[c][r][e]
                                   : scale_by_pow2(o_all[c][r][e], max_all[r] - largest) +
                                         scale_by_pow2(o[c][r][e], max_now[r] - largest);
          }
        max_all[r] = largest;
      }
      if (has_lane) {
#pragma unroll
        for (int h = 0; h < kLaneRows; ++h) {
          const int row = lane_row + 32 * h;
          float l = lane_now[h];
#pragma unroll
          for (int width = 1; width < numerics::kSoftmaxLanes; width *= 2)
            l = l + __shfl_xor_sync(0xFFFFFFFFU, l, width);
          if (position_of(row) < segment_first) continue;
          if (alone) {
            l_all[h] = l, l_max[h] = row_max[row];
          } else {
            const int largest = max(l_max[h], row_max[row]);
            l_all[h] = scale_by_pow2(l_all[h], l_max[h] - largest) + scale_by_pow2(l, row_max[row] - largest);
            l_max[h] = largest;
          }
        }
      }
    }
  }

  if (has_lane && lane == 0) {
#pragma unroll
    for (int h = 0; h < kLaneRows; ++h) {
      const int row = lane_row + 32 * h;
      if (row >= pairs) continue;
      if (apart) {
        float* to = partial_at(a, sequence, head_of(row), static_cast<int>(blockIdx.x));
        to[0] = static_cast<float>(l_max[h]), to[1] = l_all[h];
        continue;
      }
      const float inverse = 1.0F / l_all[h];
      row_inverse[row] = inverse;
      if (a.inverse_sum != nullptr) {
        a.inverse_sum[row_of(row) * a.heads + head_of(row)] = inverse;
        a.max_exponent[row_of(row) * a.heads + head_of(row)] = static_cast<float>(l_max[h]);
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    const int pair = ty() + 16 * r;
    if (pair >= pairs) continue;
    float* out = (apart ? partial_at(a, sequence, head_of(pair), static_cast<int>(blockIdx.x)) + 2
                        : a.out + row_of(pair) * a.ldo + head_of(pair) * a.d) +
                 tx() * 4;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (c * kWidth + tx() * 4 + e < a.d)
          out[c * kWidth + e] = apart ? o_all[c][r][e] : o_all[c][r][e] * row_inverse[pair];
  }
}

// Merges the segments of one row and head (x: head, y: sequence), ascending.
__global__ void __launch_bounds__(kThreads) merge_kernel(const Forward a) {
  const int head = static_cast<int>(blockIdx.x), sequence = static_cast<int>(blockIdx.y);
  const int x = static_cast<int>(threadIdx.x);
  const int position = a.rows.first_position == nullptr ? 0 : a.rows.first_position[sequence];
  const int64_t row = a.rows.first_row[sequence];
  if (x >= a.d) return;
  const float* part = partial_at(a, sequence, head, 0);
  int max_all = static_cast<int>(part[0]);
  float l = part[1], o = part[2 + x];
  for (int segment = 1; segment * numerics::kAttentionSegment <= position; ++segment) {
    part = partial_at(a, sequence, head, segment);
    const int max_now = static_cast<int>(part[0]), largest = max(max_all, max_now);
    l = scale_by_pow2(l, max_all - largest) + scale_by_pow2(part[1], max_now - largest);
    o = scale_by_pow2(o, max_all - largest) + scale_by_pow2(part[2 + x], max_now - largest);
    max_all = largest;
  }
  const float inverse = 1.0F / l;
  a.out[row * a.ldo + head * a.d + x] = o * inverse;
  if (x == 0 && a.inverse_sum != nullptr) {
    a.inverse_sum[row * a.heads + head] = inverse;
    a.max_exponent[row * a.heads + head] = static_cast<float>(max_all);
  }
}

template <int kR, int kChunks>
void launch(const cuda::Context& context, const Forward& a, int64_t kv_heads) {
  constexpr int kRows = kR * 16;
  constexpr int kBytes = 4 * (2 * kRows * kPitch + 2 * kTileFloats + 3 * kRows);
  auto* kernel = forward_kernel<kR, kChunks>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "preparing attention (fp32)");
  for (int64_t first = 0; first < a.rows.n; first += 65535) {  // the grid's limit
    Forward part = a;
    part.rows.first_row += first;
    if (part.rows.rows != nullptr) part.rows.rows += first;
    if (part.rows.first_position != nullptr) part.rows.first_position += first;
    if (part.kv.table != nullptr) part.kv.table += first * part.kv.max_pages;
    const auto n = static_cast<unsigned>(std::min<int64_t>(a.rows.n - first, 65535));
    const unsigned tiles = a.partial != nullptr ? static_cast<unsigned>(a.segments)
                                                : cuda::blocks_for(a.rows.max_rows * a.group, kRows);
    kernel<<<dim3(tiles, static_cast<unsigned>(kv_heads), n), kThreads, kBytes, context.stream()>>>(part);
    cuda::check_launch("attention (fp32)");
    if (a.partial == nullptr) continue;
    merge_kernel<<<dim3(static_cast<unsigned>(a.heads), n), kThreads, 0, context.stream()>>>(part);
    cuda::check_launch("merging attention's segments (fp32)");
  }
}

bool aligned(const float* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 4 == 0;
}

void run(const cuda::Context& context, const AttentionShape& shape, Forward a) {
  LOCKSTEP_CHECK(shape.head_size > 0 && shape.head_size <= 256 && shape.head_size % 2 == 0 &&
                 shape.heads % shape.kv_heads == 0);
  if (a.rows.n == 0 || a.rows.max_rows == 0) return;
  a.heads = static_cast<int>(shape.heads);
  a.group = static_cast<int>(shape.heads / shape.kv_heads);
  a.d = static_cast<int>(shape.head_size);
  a.scale = attention_score_scale(shape.head_size);
  a.vector =
      a.d % 4 == 0 && aligned(a.q, a.ldq) && aligned(a.kv.k, a.kv.ld) && aligned(a.kv.v, a.kv.page_stride);
  const bool few = a.rows.max_rows * a.group <= 16;
  // Decoding few sequences that may be long: blocks for the segments.
  a.segments = static_cast<int>((a.kv.max_pages + kSegmentBlocks - 1) / kSegmentBlocks);
  if (few && a.rows.rows == nullptr && a.segments > 1 && a.rows.n * shape.kv_heads < 2 * context.sms())
    a.partial = static_cast<float*>(
        context.scratch(attention_forward_fp32_scratch_bytes(shape, a.rows.n, a.kv.max_pages)));
  if (a.d <= 64) {
    few ? launch<1, 1>(context, a, shape.kv_heads) : launch<4, 1>(context, a, shape.kv_heads);
  } else if (a.d <= 128) {
    few ? launch<1, 2>(context, a, shape.kv_heads) : launch<4, 2>(context, a, shape.kv_heads);
  } else {
    few ? launch<1, 4>(context, a, shape.kv_heads) : launch<4, 4>(context, a, shape.kv_heads);
  }
}

// Block x: rows of a run; y: run.
__global__ void __launch_bounds__(kThreads) write_kernel(int kv_heads, int d, const float* k, const float* v,
                                                         int64_t ld, AttentionRows rows, KvPages pages) {
  const int64_t sequence = blockIdx.y;
  const int count = rows.rows == nullptr ? 1 : rows.rows[sequence];
  const int first = rows.first_position == nullptr ? 0 : rows.first_position[sequence];
  for (int row = static_cast<int>(blockIdx.x); row < count; row += static_cast<int>(gridDim.x)) {
    const int position = first + row;
    float* page =
        pages.data + pages.table[sequence * pages.max_pages + position / kBlock] * pages.page_stride;
    const int64_t from = (rows.first_row[sequence] + row) * ld;
    for (int i = static_cast<int>(threadIdx.x); i < kv_heads * d; i += kThreads) {
      const int64_t to = (int64_t{i / d} * kBlock + position % kBlock) * d + i % d;
      page[to] = k[from + i];
      page[int64_t{kv_heads} * kBlock * d + to] = v[from + i];
    }
  }
}

}  // namespace
}  // namespace attention_fp32

int64_t attention_forward_fp32_scratch_bytes(const AttentionShape& shape, int64_t sequences,
                                             int64_t max_pages) {
  const int64_t segments = (max_pages + attention_fp32::kSegmentBlocks - 1) / attention_fp32::kSegmentBlocks;
  return sequences * shape.heads * segments * (shape.head_size + 2) * 4;
}

void write_kv_pages_fp32_cuda(const cuda::Context& context, const AttentionShape& shape, const float* k,
                              const float* v, int64_t ld, const AttentionRows& rows, const KvPages& pages) {
  for (int64_t first = 0; first < rows.n; first += 65535) {
    AttentionRows part = rows;
    KvPages to = pages;
    part.first_row += first;
    if (part.rows != nullptr) part.rows += first;
    if (part.first_position != nullptr) part.first_position += first;
    to.table += first * pages.max_pages;
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>(std::max<int64_t>(rows.max_rows, 1), 1024)),
                    static_cast<unsigned>(std::min<int64_t>(rows.n - first, 65535)));
    attention_fp32::write_kernel<<<grid, attention_fp32::kThreads, 0, context.stream()>>>(
        static_cast<int>(shape.kv_heads), static_cast<int>(shape.head_size), k, v, ld, part, to);
    cuda::check_launch("writing keys and values (fp32)");
  }
}

void attention_forward_paged_fp32_cuda(const cuda::Context& context, const AttentionShape& shape,
                                       const float* q, int64_t ldq, const AttentionRows& rows,
                                       const KvPages& pages, float* out, int64_t ldo, float* max_exponent,
                                       float* inverse_sum, const cuda::Fault& fault) {
  attention_fp32::Forward a{};
  a.q = q, a.ldq = ldq, a.rows = rows, a.out = out, a.ldo = ldo;
  a.max_exponent = max_exponent, a.inverse_sum = inverse_sum, a.fault = fault;
  const int64_t d = shape.head_size;
  a.kv = {pages.data,
          pages.data + shape.kv_heads * numerics::kKeyBlock * d,
          d,
          pages.table,
          pages.max_pages,
          pages.page_stride,
          numerics::kKeyBlock * d};
  attention_fp32::run(context, shape, a);
}

void attention_forward_samples_fp32_cuda(const cuda::Context& context, const AttentionShape& shape,
                                         const float* qkv, int64_t ld, const AttentionRows& samples,
                                         float* out, int64_t ldo, float* max_exponent, float* inverse_sum,
                                         const cuda::Fault& fault) {
  attention_fp32::Forward a{};
  a.q = qkv, a.ldq = ld, a.rows = samples, a.out = out, a.ldo = ldo;
  a.max_exponent = max_exponent, a.inverse_sum = inverse_sum, a.fault = fault;
  const float* k = qkv + shape.heads * shape.head_size;
  a.kv = {k, k + shape.kv_heads * shape.head_size, ld, nullptr, 0, 0, 0};
  attention_fp32::run(context, shape, a);
}

}  // namespace lockstep::ops
