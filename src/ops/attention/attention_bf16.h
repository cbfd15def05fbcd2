// SPDX-License-Identifier: Apache-2.0
// Causal attention of profile bf16 (docs/numerics.md, Attention and Profile bf16): chains of TC16, bfloat16
// q, k, v, weights and gradients, binary32 sums. One definition for prefill, chunked prefill, decode,
// prefix-cache hits and training. Query head h reads key/value head h / (heads/kv_heads).
//
// Values must be finite; a later key's v meets the weight +0 and must not be infinite.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"
#include "numerics/constants.h"
#include "ops/attention/attention_shape.h"

namespace lockstep::ops {

// Keys and values live in blocks of 64 positions (numerics::kKeyBlock) counted from position 0 of the
// sequence: a K block and a V block are [kv_heads][64][head_size] each.
int64_t kv_block_elements_bf16(const AttentionShape& shape);  // kv_heads * 64 * head_size
// Writes rows of k and v ([n, kv_heads*head_size], row stride ld) at positions first, first+1, ... into the
// blocks. Entries of other positions are untouched and never read.
void write_kv_blocks_bf16(const AttentionShape& shape, const numerics::Bf16* k, const numerics::Bf16* v,
                          int64_t ld, int64_t n, int64_t first, numerics::Bf16* const* k_blocks,
                          numerics::Bf16* const* v_blocks);

// A run of consecutive query rows of one sequence.
struct AttentionRunBf16 {
  int64_t first_row = 0;  // row of q and out of its first query
  int64_t rows = 0;
  int64_t first_position = 0;  // query i is at position first_position + i and sees keys 0 .. that position
  const numerics::Bf16* const* k_blocks = nullptr;  // [ceil((first_position + rows)/64)]
  const numerics::Bf16* const* v_blocks = nullptr;
};

// q rows at q + row*ldq: [heads*head_size]. out [rows, heads*head_size] with stride ldo, overwritten.
// max_exponent (M as a float) and inverse_sum (r) [rows, heads] may both be null. segment: keys a segment, a
// multiple of 64; 0: one segment whatever the length.
// Returns false when a visible score is NaN or |s| >= 2^21 (the outputs are then undefined).
[[nodiscard]] bool attention_forward_bf16_ref(const AttentionShape& shape, const numerics::Bf16* q,
                                              int64_t ldq, const AttentionRunBf16* runs, int64_t n_runs,
                                              numerics::Bf16* out, int64_t ldo, float* max_exponent,
                                              float* inverse_sum,
                                              int64_t segment = numerics::kAttentionSegment);

// Tables of RoPE, binary32 [positions, head_size/2]. null: the gradients of q and k keep their rotation.
struct AttentionRope {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Whole samples: rows [begin, end) of every matrix are positions 0 .. of one sequence. q, k, v: columns of
// one matrix qkv (row stride ld; q first, then k, v) after bias and RoPE; out, d_out [rows, heads*head_size];
// max_exponent, inverse_sum [rows, heads] of the forward pass.
// d_qkv: same layout as qkv, the samples' rows overwritten: dq and dk times 1/sqrt(head_size) with RoPE
// undone (where `rope` has tables), dv; each rounded once. chunk: steps a chunk of dv and dk, a multiple
// of 16.
void attention_backward_bf16_ref(const AttentionShape& shape, const numerics::Bf16* qkv, int64_t ld,
                                 const numerics::Bf16* out, const numerics::Bf16* d_out,
                                 const float* max_exponent, const float* inverse_sum,
                                 const AttentionSample* samples, int64_t n_samples, const AttentionRope& rope,
                                 numerics::Bf16* d_qkv, int64_t chunk = numerics::kGradientChunk);

}  // namespace lockstep::ops
