// SPDX-License-Identifier: Apache-2.0
// Attention of profile bf16 on a Hopper GPU, the bits of attention_bf16_ref.cpp. All pointers are device
// pointers. Fast where head_size is 64 or 128, rows are 16-byte aligned and strides are multiples of 8
// elements; right for every even head size up to 256. `fault`: a score that is NaN or |s| >= 2^21 (detail:
// its row); the outputs are then undefined. Values must be finite (attention_bf16.h).
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "ops/attention/attention_bf16.h"

namespace lockstep::ops {

// The rows of a micro-batch: sample i is rows [begin[i], begin[i] + rows[i]), positions 0 .. of one sequence;
// begin[i] is a multiple of 16, and no other sample has rows below begin[i] + rows[i] rounded up to 16.
struct AttentionSamplesCuda {
  const int32_t* begin = nullptr;  // [count]
  const int32_t* rows = nullptr;   // [count], 0 is allowed
  int64_t count = 0;
  int64_t max_rows = 0;    // no sample has more
  int64_t total_rows = 0;  // every sample ends at or before this row, counted with its padding to 16
};

// q, k, v: columns of qkv (row stride ld; q first, then k, v) after bias and RoPE. out [rows,
// heads*head_size]; max_exponent (M as a float) and inverse_sum (r) binary32 [rows, heads]. The rows of
// samples are overwritten, their padding to 16 with zeros; other rows are untouched. segment: as in
// attention_forward_bf16_ref.
void attention_forward_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                 const numerics::Bf16* qkv, int64_t ld, const AttentionSamplesCuda& samples,
                                 numerics::Bf16* out, float* max_exponent, float* inverse_sum,
                                 const cuda::Fault& fault, int64_t segment = numerics::kAttentionSegment);

// As attention_backward_bf16_ref. d_qkv: same layout as qkv; the rows of samples are overwritten, their
// padding to 16 with zeros. `rope` holds device pointers. Scratch: attention_backward_bf16_scratch() bytes.
void attention_backward_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                  const numerics::Bf16* qkv, int64_t ld, const numerics::Bf16* out,
                                  const numerics::Bf16* d_out, const float* max_exponent,
                                  const float* inverse_sum, const AttentionSamplesCuda& samples,
                                  const AttentionRope& rope, numerics::Bf16* d_qkv,
                                  int64_t chunk = numerics::kGradientChunk);
int64_t attention_backward_bf16_scratch(const AttentionShape& shape, int64_t total_rows);

// One layer of a paged cache: block `i` of a sequence is page p = table[sequence * max_pages + i]; its K
// block [kv_heads][64][head_size] starts at base + p * page_stride + k_offset, its V block at ... + v_offset
// (elements).
struct KvPagesCuda {
  numerics::Bf16* base = nullptr;
  int64_t page_stride = 0;
  int64_t k_offset = 0;
  int64_t v_offset = 0;
  const int32_t* table = nullptr;
  int64_t max_pages = 0;
};

// Row i of k and v (columns of a matrix, row stride ld) goes to position[i] of sequence[i]; sequence[i] < 0:
// to nowhere. What the pages hold elsewhere is untouched.
void write_kv_pages_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                              const numerics::Bf16* k, const numerics::Bf16* v, int64_t ld, int64_t rows,
                              const int32_t* sequence, const int32_t* position, const KvPagesCuda& pages);

// Runs of query rows over pages that hold their keys already, as AttentionRunBf16. Device arrays [count].
struct AttentionRunsCuda {
  const int32_t* first_row = nullptr;
  const int32_t* rows = nullptr;  // 0 is allowed
  const int32_t* first_position = nullptr;
  const int32_t* sequence = nullptr;
  int64_t count = 0;
  int64_t max_rows = 0;  // no run has more
  int64_t max_keys = 0;  // no run ends at a later position
};
void attention_prefill_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                 const numerics::Bf16* q, int64_t ldq, const AttentionRunsCuda& runs,
                                 const KvPagesCuda& pages, numerics::Bf16* out, int64_t ldo,
                                 const cuda::Fault& fault, int64_t segment = numerics::kAttentionSegment);

// Keys and values that the pages do not hold yet: row i of k and v (row stride ld) is position keys[i] - 1 of
// sequence[i], which no other row has. Head sizes and strides multiples of 8, 16-byte aligned.
struct FreshKeysCuda {
  const numerics::Bf16* k = nullptr;  // null: the pages hold all
  const numerics::Bf16* v = nullptr;
  int64_t ld = 0;
};
// One query a row: row i of q sees the first keys[i] keys of sequence[i]; keys[i] = 0: the row is skipped.
// max_keys bounds keys[i]. Scratch: attention_decode_bf16_scratch() bytes. Fresh keys and values are put into
// the pages; everything else but q is then read early (launch_early.h): no launch may write it that can still
// run when the one ahead on the stream begins.
void attention_decode_bf16_cuda(const cuda::Context& context, const AttentionShape& shape,
                                const numerics::Bf16* q, int64_t ldq, int64_t rows, const int32_t* sequence,
                                const int32_t* keys, int64_t max_keys, const KvPagesCuda& pages,
                                numerics::Bf16* out, int64_t ldo, const cuda::Fault& fault,
                                int64_t segment = numerics::kAttentionSegment,
                                const FreshKeysCuda& fresh = {});
int64_t attention_decode_bf16_scratch(const AttentionShape& shape, int64_t rows, int64_t max_keys,
                                      int64_t segment = numerics::kAttentionSegment);

}  // namespace lockstep::ops
