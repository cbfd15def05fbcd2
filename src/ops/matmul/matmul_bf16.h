// SPDX-License-Identifier: Apache-2.0
// Products with a weight matrix W [n, k], row-major, and their gradients, profile bf16: operands are
// bfloat16, a chain is a chain of TC16 over groups of 16 steps, chunk sums are added in binary32
// (docs/numerics.md, Profile bf16). The product gives binary32; an epilogue rounds it. Inputs and outputs
// must not overlap except where said. Row strides (ld*) are in elements.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"
#include "numerics/constants.h"

namespace lockstep::ops {

using numerics::Bf16;
struct WeightGradientTarget;  // matmul.h; device code includes this header without it

// y[m, n] = x[m, k] W^T: k ascending in chunks of `chunk` (a multiple of 16), each a chain of TC16 from +0
// whose last group is filled with zeros; the first chunk's sum is the start, the others are added ascending.
// Overwrites y. `chunk` is an argument so that other values can be measured; the profile's value is
// kForwardChunk.
void matmul_bf16_forward_ref(const Bf16* x, int64_t ldx, const Bf16* w, int64_t m, int64_t n, int64_t k,
                             float* y, int64_t ldy, int64_t chunk = numerics::kForwardChunk);

// dx[m, k] = dy[m, n] W: n ascending in chunks of kGradientChunk, as above. Overwrites dx.
void matmul_bf16_input_gradient_ref(const Bf16* dy, int64_t lddy, const Bf16* w, int64_t m, int64_t n,
                                    int64_t k, float* dx, int64_t lddx);

// As matmul_weight_gradient_ref. Each sample's rows are followed by zero rows up to a multiple of kTokenPad;
// rows and target.rows_before count them and are multiples of kTokenPad.
[[nodiscard]] bool matmul_bf16_weight_gradient_ref(const Bf16* dy, int64_t lddy, const Bf16* x, int64_t ldx,
                                                   int64_t rows, int64_t n, int64_t k,
                                                   const WeightGradientTarget& target);

// Epilogues, in the order bias, RoPE or residual or SwiGLU, rounding.

// y[m, n] = y + bias[n], in place.
void matmul_bf16_bias_ref(const Bf16* bias, int64_t m, int64_t n, float* y, int64_t ldy);

// cos and sin [positions, head_size/2] of make_rope_table; positions[m].
struct RopeEpilogue {
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int32_t* positions = nullptr;
  int64_t head_size = 0;
  int64_t columns = 0;  // of q and k: a multiple of head_size; the columns behind are left alone
};
// Rotates the pairs (i, i + head_size/2) of each head of the first `columns` columns, in place.
void matmul_bf16_rope_ref(const RopeEpilogue& rope, int64_t m, float* y, int64_t ldy);

// out[m, n] = bf16(y).
void matmul_bf16_round_ref(const float* y, int64_t ldy, int64_t m, int64_t n, Bf16* out, int64_t ldo);

// out[m, n] = bf16(residual + y); out may be residual.
void matmul_bf16_residual_ref(const float* y, int64_t ldy, const Bf16* residual, int64_t ld_residual,
                              int64_t m, int64_t n, Bf16* out, int64_t ldo);

// y [m, 2f]: gate in columns [0, f), up behind. gate_up [m, 2f] = bf16(y) where it is not null; act [m, f] =
// bf16((g / (1 + exp(-g))) * u) of the rounded gate and up.
void matmul_bf16_swiglu_ref(const float* y, int64_t ldy, int64_t m, int64_t f, Bf16* gate_up,
                            int64_t ld_gate_up, Bf16* act, int64_t ld_act);

}  // namespace lockstep::ops
