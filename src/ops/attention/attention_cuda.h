// SPDX-License-Identifier: Apache-2.0
// The attention of attention.h on a GPU (compute capability 8.0 and later), profile fp32: the same bits as
// the `_ref` functions. All pointers are device pointers; nothing is copied to the host, the number of SMs
// changes no bit. 16-byte aligned pointers with strides and head sizes that are multiples of 4 are fast,
// others correct.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "ops/attention/attention.h"

namespace lockstep::ops {

// Runs of consecutive query rows, one of each of n sequences: int32 device arrays [n]. Query i of a run is
// row first_row + i, at position first_position + i of its sequence. No rows: the sequence is skipped.
struct AttentionRows {
  const int32_t* first_row = nullptr;
  const int32_t* rows = nullptr;            // null: one row each (decode)
  const int32_t* first_position = nullptr;  // null: 0 (whole samples)
  int64_t n = 0;
  int64_t max_rows = 1;  // at least the largest of rows; sizes the grid
};

// Keys and values of one layer in pages of 64 positions: page p holds, at data + p * page_stride, a K block
// [kv_heads][64][head_size] and behind it a V block of the same layout, row-major both. The keys at positions
// 64i .. 64i + 63 of sequence s are in page table[s * max_pages + i].
struct KvPages {
  float* data = nullptr;
  int64_t page_stride = 0;  // floats
  const int32_t* table = nullptr;
  int64_t max_pages = 0;
};

// Writes the rows of k and v (row stride ld) to their positions in the pages.
void write_kv_pages_fp32_cuda(const cuda::Context& context, const AttentionShape& shape, const float* k,
                              const float* v, int64_t ld, const AttentionRows& rows, const KvPages& pages);

// q rows at q + row*ldq: [heads*head_size]; out with stride ldo. max_exponent (M as a float), inverse_sum (r)
// [row, heads] may both be null. A visible score that is NaN or |s| >= 2^21 is reported as fault.key; the
// outputs of its row are then undefined. Rows outside the runs are not touched.
void attention_forward_paged_fp32_cuda(const cuda::Context& context, const AttentionShape& shape,
                                       const float* q, int64_t ldq, const AttentionRows& rows,
                                       const KvPages& pages, float* out, int64_t ldo, float* max_exponent,
                                       float* inverse_sum, const cuda::Fault& fault);

// Scratch of a decode step (rows.rows null) over pages; other calls need none.
int64_t attention_forward_fp32_scratch_bytes(const AttentionShape& shape, int64_t sequences,
                                             int64_t max_pages);

// The same of whole samples (rows.first_position null): q, k, v are columns of qkv
// [rows, (heads + 2*kv_heads)*head_size] with row stride ld.
void attention_forward_samples_fp32_cuda(const cuda::Context& context, const AttentionShape& shape,
                                         const float* qkv, int64_t ld, const AttentionRows& samples,
                                         float* out, int64_t ldo, float* max_exponent, float* inverse_sum,
                                         const cuda::Fault& fault);

// attention_backward_ref of whole samples; matrices are dense as there. total_rows: rows of the matrices (of
// the scratch for D). Rows of d_qkv outside the samples are not touched.
void attention_backward_fp32_cuda(const cuda::Context& context, const AttentionShape& shape, const float* qkv,
                                  const float* out, const float* d_out, const float* max_exponent,
                                  const float* inverse_sum, const AttentionRows& samples, int64_t total_rows,
                                  float* d_qkv);
// Scratch of attention_backward_fp32_cuda.
int64_t attention_backward_fp32_scratch_bytes(const AttentionShape& shape, int64_t total_rows);

}  // namespace lockstep::ops
