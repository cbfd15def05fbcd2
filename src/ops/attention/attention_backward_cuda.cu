// SPDX-License-Identifier: Apache-2.0
// Backward attention in binary32: D, then the gradient of q by tiles of queries, then those of k and v by
// blocks of keys. Scores are computed again in both; nothing is added by two blocks.
#include <algorithm>

#include "core/check.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_fp32_tile.cuh"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace attention_fp32 {
namespace {

using numerics::kGradientChunk;

struct Backward {
  int heads, kv_heads, d;
  float score_scale, gradient_scale;
  const float* qkv;
  int64_t ld;
  const float* out;
  const float* d_out;
  const float* max_exponent;
  const float* inverse_sum;
  const int32_t* first_row;
  const int32_t* rows;
  float* row_sum;  // D [rows, heads]
  float* d_qkv;
  bool vector;

  __device__ int group() const { return heads / kv_heads; }
  __device__ int64_t width() const { return int64_t{heads} * d; }
  __device__ const float* q(int64_t row, int head) const { return qkv + row * ld + head * d; }
  __device__ const float* k(int64_t row, int kv_head) const { return qkv + row * ld + (heads + kv_head) * d; }
  __device__ const float* v(int64_t row, int kv_head) const { return k(row, kv_head) + kv_heads * d; }
  __device__ const float* o_gradient(int64_t row, int head) const { return d_out + row * width() + head * d; }
};

// D of one row and head a warp: row_dot, thread t has lanes 4t .. 4t+3.
__global__ void __launch_bounds__(kThreads) row_sum_kernel(const Backward a) {
  static_assert(numerics::kSumLanes == 128);
  const int64_t sample = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t count = int64_t{a.rows[sample]} * a.heads;
  for (int64_t i = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32; i < count;
       i += gridDim.x * int64_t{kThreads / 32}) {
    const int64_t at = a.first_row[sample] * int64_t{a.heads} + i;
    const float* g = a.d_out + at * a.d;
    const float* o = a.out + at * a.d;
    float lanes[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int first = 0; first < a.d; first += numerics::kSumLanes) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = first + lane * 4 + e;
        if (x < a.d) lanes[e] = __fmaf_rn(g[x], o[x], lanes[e]);
      }
    }
    float sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    for (int width = 1; width < 32; width *= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFU, sum, width);
    if (lane == 0) a.row_sum[at] = sum;
  }
}

struct RowValues {
  float max, inverse, sum;
};

// P of a score's chain, from the row's final M and r.
__device__ __forceinline__ float probability(const Backward& a, float dot, const RowValues& row) {
  const float s = dot * a.score_scale;
  const float n = numerics::round_even(s);
  const float w =
      n - row.max < static_cast<float>(numerics::kWeightFloor)
          ? 0.0F
          : numerics::scale_by_pow2(numerics::exp2_fraction(s - n), static_cast<int>(n - row.max));
  return w * row.inverse;
}

// s and dp of the tile queries x keys: chains over the head size. The first chunk's tiles stay in shared
// memory when there is no other; `fresh` says that the queries' (keys') must be loaded.
struct ScoreTiles {
  float* q;
  float* g;  // dO
  float* k;
  float* v;

  __device__ void run(const Backward& a, int chunks, int64_t first_query, int queries, int head,
                      int64_t first_key, int keys, int kv_head, bool fresh_queries, bool fresh_keys,
                      float (&s)[4][4], float (&dp)[4][4]) const {
    clear(s);
    clear(dp);
    for (int c = 0; c < chunks; ++c) {
      const int width = chunk_width(a.d, c), at = c * kWidth;
      __syncthreads();
      if (fresh_queries || chunks > 1) {
        load_tile(q, queries, width, a.vector, [&](int r) { return a.q(first_query + r, head) + at; });
        load_tile(g, queries, width, a.vector,
                  [&](int r) { return a.o_gradient(first_query + r, head) + at; });
      }
      if (fresh_keys || chunks > 1) {
        load_tile(k, keys, width, a.vector, [&](int r) { return a.k(first_key + r, kv_head) + at; });
        load_tile(v, keys, width, a.vector, [&](int r) { return a.v(first_key + r, kv_head) + at; });
      }
      __syncthreads();
      dot_tile<4>(s, q, k, width);
      dot_tile<4>(dp, g, v, width);
    }
  }
};

template <int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks == 4 ? 1 : 2) query_gradient_kernel(const Backward a) {
  extern __shared__ float4 shared[];
  float* memory = reinterpret_cast<float*>(shared);
  const ScoreTiles tiles = {memory, memory + kTileFloats, memory + 2 * kTileFloats, memory + 3 * kTileFloats};
  float* ds = memory + 4 * kTileFloats;  // [query][key]
  const int sample = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int kv_head = head / a.group();
  const int rows = a.rows[sample];
  // The longest tiles first.
  const int block = (rows - 1) / kBlock - static_cast<int>(blockIdx.x);
  if (rows <= 0 || block < 0) return;
  const int64_t begin = a.first_row[sample];
  const int first_query = block * kBlock, queries = min(kBlock, rows - first_query);
  const int chunks = kChunks == 1 ? 1 : (a.d + kWidth - 1) / kWidth;

  RowValues row[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t at = (begin + first_query + min(ty() + 16 * r, queries - 1)) * a.heads + head;
    row[r] = {a.max_exponent[at], a.inverse_sum[at], a.row_sum[at]};
  }
  float acc[kChunks][4][4];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) clear(acc[c]);

  for (int key_block = 0; key_block <= block; ++key_block) {
    const int64_t first_key = begin + key_block * kBlock;
    const int keys = key_block == block ? queries : kBlock;
    float s[4][4], dp[4][4];
    tiles.run(a, chunks, begin + first_query, queries, head, first_key, keys, kv_head, key_block == 0, true,
              s, dp);
    int limit[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      limit[r] = key_block == block ? ty() + 16 * r : kBlock;
      if (ty() + 16 * r >= queries) limit[r] = -1;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float p = probability(a, s[r][c], row[r]);
        ds[(ty() + 16 * r) * kPitch + tx() + 16 * c] = p * (dp[r][c] - row[r].sum);
      }
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (c >= chunks) break;
      if (chunks > 1) {
        __syncthreads();
        load_tile(tiles.k, keys, chunk_width(a.d, c), a.vector,
                  [&](int r) { return a.k(first_key + r, kv_head) + c * kWidth; });
        __syncthreads();
      }
      weighted_sum<4>(acc[c], ds, tiles.k, limit, key_block < block && queries == kBlock);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (ty() + 16 * r >= queries) continue;
    float* to = a.d_qkv + (begin + first_query + ty() + 16 * r) * a.ld + head * a.d;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = c * kWidth + tx() * 4 + e;
        if (x < a.d) to[x] = acc[c][r][e] * a.gradient_scale;
      }
  }
}

// The chains of one thread's keys 4 ty + r and columns 4 tx + e, in chunks of kGradientChunk steps. Whole
// chunks are summed in the result itself, which no other thread touches.
template <int kChunks>
struct KeyChains {
  float acc[kChunks][4][4];
  float* to;  // the element of key 4 ty and column 4 tx
  int ld, keys, d;
  int chunk = 0;  // of the last step

  template <class Body>
  __device__ void each(const Body& body) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int x = c * kWidth + e;
          if (ty() * 4 + r < keys && x + tx() * 4 < d) body(acc[c][r][e], to[r * ld + x]);
        }
  }
  // Queries [begin, end) of a tile: weights [query][key], values [query][column of chunk c]. diagonal: key j
  // sees queries from j on.
  __device__ void add(int c, const float* weights, const float* values, int begin, int end, bool diagonal) {
    const float* pw = weights + ty() * 4;
    const float* pv = values + tx() * 4;
#pragma unroll 4
    for (int q = begin; q < end; ++q) {
      const float4 w = *reinterpret_cast<const float4*>(pw + q * kPitch);
      const float4 v = *reinterpret_cast<const float4*>(pv + q * kPitch);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float x = r == 0 ? w.x : r == 1 ? w.y : r == 2 ? w.z : w.w;
        if (diagonal && q < ty() * 4 + r) continue;
#pragma unroll
        for (int cc = 0; cc < kChunks; ++cc) {  // c as a constant: registers have no index
          if (cc != c) continue;
          acc[cc][r][0] = __fmaf_rn(x, v.x, acc[cc][r][0]);
          acc[cc][r][1] = __fmaf_rn(x, v.y, acc[cc][r][1]);
          acc[cc][r][2] = __fmaf_rn(x, v.z, acc[cc][r][2]);
          acc[cc][r][3] = __fmaf_rn(x, v.w, acc[cc][r][3]);
        }
      }
    }
  }
  // All steps of a tile of `queries` queries, the first of them step `step`. load(c): chunk c's values.
  template <class Load>
  __device__ void add_tile(int chunks, const float* weights, const float* values, int64_t step, int queries,
                           bool diagonal, const Load& load) {
    for (int begin = 0; begin < queries;) {
      const int now = static_cast<int>((step + begin) / kGradientChunk);
      if (now != chunk) {
        const bool first = chunk == 0;
        each([&](float& sum, float& total) {
          total = first ? sum : total + sum;
          sum = 0.0F;
        });
        chunk = now;
      }
      const int end = static_cast<int>(min(int64_t{queries}, (now + 1) * kGradientChunk - step));
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (c >= chunks) break;
        load(c);
        add(c, weights, values, begin, end, diagonal);
      }
      begin = end;
    }
  }
  __device__ void finish(float scale) {
    each([&](float& sum, float& total) { total = (chunk == 0 ? sum : total + sum) * scale; });
  }
};

template <int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks == 1 ? 2 : 1) key_gradient_kernel(const Backward a) {
  extern __shared__ float4 shared[];
  float* memory = reinterpret_cast<float*>(shared);
  const ScoreTiles tiles = {memory, memory + kTileFloats, memory + 2 * kTileFloats, memory + 3 * kTileFloats};
  float* weights = memory + 4 * kTileFloats;  // [query][key]
  const int sample = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y);
  const int rows = a.rows[sample];
  const int block = static_cast<int>(blockIdx.x) * kBlock;  // position of the block's first key
  if (block >= rows) return;
  const int64_t begin = a.first_row[sample];
  const int keys = min(kBlock, rows - block);
  const int chunks = kChunks == 1 ? 1 : (a.d + kWidth - 1) / kWidth;
  const int64_t padded = (rows + numerics::kTokenPad - 1) / numerics::kTokenPad * numerics::kTokenPad;

  KeyChains<kChunks> dk, dv;
  dk.to = a.d_qkv + (begin + block + ty() * 4) * a.ld + (a.heads + kv_head) * a.d + tx() * 4;
  dv.to = dk.to + a.kv_heads * a.d;
  dk.ld = dv.ld = static_cast<int>(a.ld);
  dk.keys = dv.keys = keys;
  dk.d = dv.d = a.d;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) clear(dk.acc[c]), clear(dv.acc[c]);

  bool fresh = true;
  for (int g = 0; g < a.group(); ++g) {
    const int head = kv_head * a.group() + g;
    for (int first = block; first < rows; first += kBlock) {
      const int64_t first_query = begin + first;
      const int queries = min(kBlock, rows - first);
      const int64_t step = g * (padded - block) + (first - block);
      float s[4][4], dp[4][4];
      tiles.run(a, chunks, first_query, queries, head, begin + block, keys, kv_head, true, fresh, s, dp);
      fresh = false;
      float ds[4][4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int64_t at = (first_query + min(ty() + 16 * r, queries - 1)) * a.heads + head;
        const RowValues row = {a.max_exponent[at], a.inverse_sum[at], a.row_sum[at]};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float p = probability(a, s[r][c], row);
          ds[r][c] = p * (dp[r][c] - row.sum);
          weights[(ty() + 16 * r) * kPitch + tx() + 16 * c] = p;
        }
      }
      __syncthreads();
      dv.add_tile(chunks, weights, tiles.g, step, queries, first == block, [&](int c) {
        if (chunks == 1) return;
        __syncthreads();
        load_tile(tiles.g, queries, chunk_width(a.d, c), a.vector,
                  [&](int r) { return a.o_gradient(first_query + r, head) + c * kWidth; });
        __syncthreads();
      });
      __syncthreads();
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) weights[(ty() + 16 * r) * kPitch + tx() + 16 * c] = ds[r][c];
      __syncthreads();
      dk.add_tile(chunks, weights, tiles.q, step, queries, first == block, [&](int c) {
        if (chunks == 1) return;
        __syncthreads();
        load_tile(tiles.q, queries, chunk_width(a.d, c), a.vector,
                  [&](int r) { return a.q(first_query + r, head) + c * kWidth; });
        __syncthreads();
      });
    }
  }
  dk.finish(a.gradient_scale);
  dv.finish(1.0F);
}

template <int kChunks>
void launch(const cuda::Context& context, const Backward& a, int64_t samples, int64_t max_rows) {
  constexpr int kBytes = 4 * 5 * kTileFloats;
  cuda::check(cudaFuncSetAttribute(query_gradient_kernel<kChunks>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "preparing the gradient of attention (fp32)");
  cuda::check(
      cudaFuncSetAttribute(key_gradient_kernel<kChunks>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "preparing the gradient of attention (fp32)");
  for (int64_t first = 0; first < samples; first += 65535) {
    Backward part = a;
    part.first_row += first;
    part.rows += first;
    const auto n = static_cast<unsigned>(std::min<int64_t>(samples - first, 65535));
    const unsigned blocks = cuda::blocks_for(max_rows, kBlock);
    row_sum_kernel<<<dim3(std::min(cuda::blocks_for(max_rows * a.heads, kThreads / 32), 256U), n), kThreads,
                     0, context.stream()>>>(part);
    query_gradient_kernel<kChunks>
        <<<dim3(blocks, static_cast<unsigned>(a.heads), n), kThreads, kBytes, context.stream()>>>(part);
    key_gradient_kernel<kChunks>
        <<<dim3(blocks, static_cast<unsigned>(a.kv_heads), n), kThreads, kBytes, context.stream()>>>(part);
    cuda::check_launch("the gradient of attention (fp32)");
  }
}

}  // namespace
}  // namespace attention_fp32

int64_t attention_backward_fp32_scratch_bytes(const AttentionShape& shape, int64_t total_rows) {
  return total_rows * shape.heads * 4;
}

void attention_backward_fp32_cuda(const cuda::Context& context, const AttentionShape& shape, const float* qkv,
                                  const float* out, const float* d_out, const float* max_exponent,
                                  const float* inverse_sum, const AttentionRows& samples, int64_t total_rows,
                                  float* d_qkv) {
  LOCKSTEP_CHECK(shape.head_size > 0 && shape.head_size <= 256 && shape.head_size % 2 == 0 &&
                 shape.heads % shape.kv_heads == 0);
  LOCKSTEP_CHECK(samples.first_position == nullptr && samples.rows != nullptr);
  if (samples.n == 0 || samples.max_rows == 0) return;
  attention_fp32::Backward a{};
  a.heads = static_cast<int>(shape.heads);
  a.kv_heads = static_cast<int>(shape.kv_heads);
  a.d = static_cast<int>(shape.head_size);
  a.score_scale = attention_score_scale(shape.head_size);
  a.gradient_scale = attention_gradient_scale(shape.head_size);
  a.qkv = qkv, a.out = out, a.d_out = d_out, a.d_qkv = d_qkv;
  a.ld = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  a.max_exponent = max_exponent, a.inverse_sum = inverse_sum;
  a.first_row = samples.first_row, a.rows = samples.rows;
  a.row_sum = static_cast<float*>(context.scratch(attention_backward_fp32_scratch_bytes(shape, total_rows)));
  a.vector = a.d % 4 == 0 && reinterpret_cast<uintptr_t>(qkv) % 16 == 0 &&
             reinterpret_cast<uintptr_t>(d_out) % 16 == 0;
  if (a.d <= 64) {
    attention_fp32::launch<1>(context, a, samples.n, samples.max_rows);
  } else if (a.d <= 128) {
    attention_fp32::launch<2>(context, a, samples.n, samples.max_rows);
  } else {
    attention_fp32::launch<4>(context, a, samples.n, samples.max_rows);
  }
}

}  // namespace lockstep::ops
