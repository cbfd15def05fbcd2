// SPDX-License-Identifier: Apache-2.0
// matmul_bf16.h on a Hopper GPU, the same bits. Pointers are device pointers. bfloat16 matrices are 16-byte
// aligned and their strides, k of a weight matrix too, multiples of 8 elements; row counts and n are
// anything. No result depends on context.sms(). Row counts, n and k are below 2^31.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "ops/matmul/matmul_bf16.h"

namespace lockstep::ops {

enum class MatmulOutput {
  kFloat,     // out: float [m, n], 16-byte aligned, ld_out a multiple of 4
  kBf16,      // out: Bf16 [m, n] = bf16(y)
  kResidual,  // out = bf16(residual + y); out may be residual
  kRope,      // out = bf16(y rotated); head_size 64 or 128, which divides n; rope.columns a multiple of it
  kSwiglu,    // n = 2f: out [m, 2f] = bf16(y) where it is not null, act [m, f]; f a multiple of 8
};

struct MatmulForwardBf16 {
  MatmulOutput output = MatmulOutput::kBf16;
  const Bf16* bias = nullptr;  // [n], 4-byte aligned; added first where it is not null
  const Bf16* residual = nullptr;
  int64_t ld_residual = 0;
  RopeEpilogue rope;  // device pointers
  void* out = nullptr;
  int64_t ld_out = 0;
  Bf16* act = nullptr;
  int64_t ld_act = 0;
  int64_t chunk = numerics::kForwardChunk;  // a multiple of 64
  // Where matmul_makes_tiles(): sums of the tiles of 128 columns of out (numerics/vocabulary_tile.cuh), at
  // tile_scale, each array [m, tiles]; null: not wanted.
  int32_t* tile_max_exponent = nullptr;
  uint64_t* tile_sum = nullptr;
  float tile_scale = 0;
};

// y = x W^T and its epilogue. Up to kMatmulDecodeRows rows: W is streamed once (scratch: see the next
// function).
inline constexpr int64_t kMatmulDecodeRows = 256;
void matmul_forward_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                              int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);
// Whether the product of this shape makes tile_max_exponent and tile_sum, which must be null where it does
// not.
bool matmul_makes_tiles(int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);
// What context.reserve_scratch() needs before the call is captured in a graph.
int64_t matmul_forward_bf16_scratch(const cuda::Context& context, int64_t m, int64_t n, int64_t k,
                                    int64_t chunk = numerics::kForwardChunk);

// out[m, n] = bf16(y rotated), as kRope for every even head size; rope.columns even.
void matmul_rope_bf16_cuda(const cuda::Context& context, const float* y, int64_t ldy, int64_t m, int64_t n,
                           const RopeEpilogue& rope, Bf16* out, int64_t ldo);

// dx[m, k] = bf16(chunk sums of dy[m, n] W).
void matmul_input_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, int64_t lddy,
                                     const Bf16* w, int64_t m, int64_t n, int64_t k, Bf16* dx, int64_t lddx);

// A leaf's rows [begin, end) of a micro-batch; multiples of 16. An empty leaf is allowed.
struct WeightGradientLeaf {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t rows_before = 0;  // of this leaf, in earlier micro-batches
  int32_t begins = 1;       // 0: goes on from carry_in
  int32_t ends = 1;         // 0: is cut here, waits in carry_out
  int32_t leaf = 0;         // its number: the detail of a fault
};

struct WeightGradientBf16 {
  const WeightGradientLeaf* leaves =
      nullptr;  // device, ascending; only the first may not begin, only the last not end
  int32_t leaf_count = 0;
  const float* carry_in =
      nullptr;                 // [2][n, k]: accumulators, then sums of whole chunks; needed if the first leaf
  float* carry_out = nullptr;  // does not begin, or the last does not end; they may not be the same memory
  int64_t* image = nullptr;    // [n, k]: += to_fixed(result) of each leaf that ends
  float bound = 0;             // gradient_bound(leaves of the update)
  cuda::Fault fault;           // an element out of range is reported, and not added
};

// dy [rows, n], x [rows, k].
void matmul_weight_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, int64_t lddy,
                                      const Bf16* x, int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                      const WeightGradientBf16& target);

}  // namespace lockstep::ops
