// SPDX-License-Identifier: Apache-2.0
// From finished sums of one token to memory, a few columns at a time, in the order in which memory takes
// them: bias, RoPE, residual, SwiGLU, rounding.
#pragma once

#include "ops/matmul/matmul_epilogue.h"

namespace lockstep::ops {

__device__ __forceinline__ void pack_eight(const float (&v)[8], uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
}
__device__ __forceinline__ void load_floats(float (&v)[8], const float* from) {
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    v[i] = four.x;
    v[i + 1] = four.y;
    v[i + 2] = four.z;
    v[i + 3] = four.w;
  }
}
__device__ __forceinline__ void store_four(Bf16* to, uint32_t a, uint32_t b) {
  *reinterpret_cast<uint2*>(to) = make_uint2(a, b);
}

// bf16(residual + v) of eight neighbouring columns; words: of the residual.
__device__ __forceinline__ void store_sum(const EpilogueArguments& e, int token, int column,
                                          const uint32_t (&words)[4], float (&v)[8]) {
  if (e.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (column + i < e.n) v[i] = v[i] + numerics::bfloat16_to_float(e.bias[column + i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = low_bf16(words[i]) + v[2 * i];
    v[2 * i + 1] = high_bf16(words[i]) + v[2 * i + 1];
  }
  uint32_t rounded[4];
  pack_eight(v, rounded);
  store_eight(static_cast<Bf16*>(e.out) + static_cast<int64_t>(token) * e.ld_out, column, e.n, rounded);
}

// What an output needs beside the sums, of eight columns or four pairs.
template <MatmulOutput kOutput>
struct TileOperand {
  uint32_t words[4];  // kResidual: the residual; kRope: bias of the first columns and of the others
};
template <>
struct TileOperand<MatmulOutput::kRope> {
  uint32_t words[4];
  float2 cos[2], sin[2];
};

// Columns column .. column + 3 and those half a head further.
__device__ __forceinline__ void load_rotation(const EpilogueArguments& e, int token, int column,
                                              TileOperand<MatmulOutput::kRope>& operand) {
  if (e.bias != nullptr) {
    const auto* bias = reinterpret_cast<const uint32_t*>(e.bias + column);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      operand.words[i] = bias[i];
      operand.words[2 + i] = bias[e.head_size / 4 + i];
    }
  }
  if (column < e.rope_columns) {
    const int64_t at = static_cast<int64_t>(e.positions[token]) * (e.head_size / 2) + column % e.head_size;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      operand.cos[i] = *reinterpret_cast<const float2*>(e.cos + at + 2 * i);
      operand.sin[i] = *reinterpret_cast<const float2*>(e.sin + at + 2 * i);
    }
  }
}

// v: pairs of a column and the one half a head further.
__device__ __forceinline__ void store_rotated(const EpilogueArguments& e, int token, int column,
                                              const TileOperand<MatmulOutput::kRope>& operand,
                                              float (&v)[8]) {
  if (e.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      v[4 * i] = v[4 * i] + low_bf16(operand.words[i]);
      v[4 * i + 1] = v[4 * i + 1] + low_bf16(operand.words[2 + i]);
      v[4 * i + 2] = v[4 * i + 2] + high_bf16(operand.words[i]);
      v[4 * i + 3] = v[4 * i + 3] + high_bf16(operand.words[2 + i]);
    }
  }
  if (column < e.rope_columns) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rotate(v[4 * i], v[4 * i + 1], operand.cos[i].x, operand.sin[i].x);
      rotate(v[4 * i + 2], v[4 * i + 3], operand.cos[i].y, operand.sin[i].y);
    }
  }
  Bf16* out = static_cast<Bf16*>(e.out) + static_cast<int64_t>(token) * e.ld_out + column;
  store_four(out, pack_bf16(v[0], v[2]), pack_bf16(v[4], v[6]));
  store_four(out + e.head_size / 2, pack_bf16(v[1], v[3]), pack_bf16(v[5], v[7]));
}

// Words of a gate and its up, four columns: the gates and the ups, two a word.
__device__ __forceinline__ void split_pairs(const uint4& pairs, uint32_t* gate, uint32_t* up) {
  gate[0] = __byte_perm(pairs.x, pairs.y, 0x5410);
  gate[1] = __byte_perm(pairs.z, pairs.w, 0x5410);
  up[0] = __byte_perm(pairs.x, pairs.y, 0x7632);
  up[1] = __byte_perm(pairs.z, pairs.w, 0x7632);
}

// Four columns from `column` of f = e.n.
__device__ __forceinline__ void store_four_gates(const EpilogueArguments& e, int token, int column,
                                                 const uint32_t* gate, const uint32_t* up,
                                                 const uint32_t* act) {
  store_four(e.act + static_cast<int64_t>(token) * e.ld_act + column, act[0], act[1]);
  if (e.out != nullptr) {
    Bf16* out = static_cast<Bf16*>(e.out) + static_cast<int64_t>(token) * e.ld_out + column;
    store_four(out, gate[0], gate[1]);
    store_four(out + e.n, up[0], up[1]);
  }
}

}  // namespace lockstep::ops
