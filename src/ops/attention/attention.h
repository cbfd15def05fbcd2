// SPDX-License-Identifier: Apache-2.0
// Causal attention with grouped key/value heads, one definition for prefill, chunked prefill, decode,
// prefix-cache hits and training (docs/numerics.md, Attention). binary32. Query head h reads key/value head h
// / (heads/kv_heads).
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/context.h"
#include "ops/attention/attention_shape.h"

namespace lockstep::ops {

// Keys and values live in blocks of 64 positions (numerics::kKeyBlock) counted from position 0 of the
// sequence: a K block is [kv_heads][head_size][64] (transposed), a V block [kv_heads][64][head_size].
int64_t kv_block_floats(const AttentionShape& shape);  // kv_heads * head_size * 64
// Writes rows of k and v ([n, kv_heads*head_size], row stride ld) at positions first, first+1, ... into the
// blocks. Entries of other positions are untouched; a fresh block must be zero-filled by its owner.
void write_kv_blocks(const AttentionShape& shape, const float* k, const float* v, int64_t ld, int64_t n,
                     int64_t first, float* const* k_blocks, float* const* v_blocks);

// A run of consecutive query rows of one sequence.
struct AttentionRun {
  int64_t first_row = 0;  // row of q and out of its first query
  int64_t rows = 0;
  int64_t first_position = 0;  // query i is at position first_position + i and sees keys 0 .. that position
  const float* const* k_blocks = nullptr;  // [ceil((first_position + rows)/64)]
  const float* const* v_blocks = nullptr;
};

// q rows at q + row*ldq: [heads*head_size]. out [rows, heads*head_size] with stride ldo, overwritten.
// max_exponent (M as a float) and inverse_sum (r) [rows, heads] may both be null.
// Returns false when a visible score is NaN or |s| >= 2^21 (the outputs are then undefined).
[[nodiscard]] bool attention_forward_ref(const AttentionShape& shape, const float* q, int64_t ldq,
                                         const AttentionRun* runs, int64_t n_runs, float* out, int64_t ldo,
                                         float* max_exponent, float* inverse_sum);
[[nodiscard]] bool attention_forward_cpu(const cpu::Context& context, const AttentionShape& shape,
                                         const float* q, int64_t ldq, const AttentionRun* runs,
                                         int64_t n_runs, float* out, int64_t ldo, float* max_exponent,
                                         float* inverse_sum);

// q, k, v: columns of one matrix qkv [rows, (heads + 2*kv_heads)*head_size] after bias and RoPE (q first,
// then k, v); out, d_out [rows, heads*head_size]; max_exponent, inverse_sum [rows, heads] of the forward
// pass. d_qkv: same layout as qkv, overwritten: dq and dk times 1/sqrt(head_size) (binary32, RoPE not yet
// undone), dv.
void attention_backward_ref(const AttentionShape& shape, const float* qkv, const float* out,
                            const float* d_out, const float* max_exponent, const float* inverse_sum,
                            const AttentionSample* samples, int64_t n_samples, float* d_qkv);
void attention_backward_cpu(const cpu::Context& context, const AttentionShape& shape, const float* qkv,
                            const float* out, const float* d_out, const float* max_exponent,
                            const float* inverse_sum, const AttentionSample* samples, int64_t n_samples,
                            float* d_qkv);

}  // namespace lockstep::ops
