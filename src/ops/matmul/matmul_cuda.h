// SPDX-License-Identifier: Apache-2.0
// The products of matmul.h on a GPU (compute capability 8.0 and later), profile fp32: the same bits as the
// `_ref` functions, for every finite input (a NaN's payload is the machine's). All pointers are device
// pointers, W is plain row-major [n, k]. Nothing is copied to the host; the number of SMs changes no bit. Row
// strides are in elements, at most 2^23. 16-byte aligned pointers with strides and n, k that are multiples of
// 4 are fast, others correct.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "ops/matmul/matmul.h"

namespace lockstep::ops {

// y[m, n] = x[m, k] W^T, then the epilogue (device pointers; residual may be y itself). Overwrites y.
void matmul_forward_fp32_cuda(const cuda::Context& context, const float* x, int64_t ldx, const float* w,
                              int64_t m, int64_t n, int64_t k, const MatmulEpilogue& epilogue, float* y,
                              int64_t ldy);

// dx[m, k] = dy[m, n] W. Overwrites dx.
void matmul_input_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy,
                                     const float* w, int64_t m, int64_t n, int64_t k, float* dx,
                                     int64_t lddx);

// Scratch of one of the two calls above: for Context::reserve_scratch() before a graph is captured.
int64_t matmul_fp32_scratch_bytes(int64_t m, int64_t outputs, int64_t steps);

// Rows [begin, end) of dy and x belong to one leaf; meaning of the rest as in WeightGradientTarget.
struct WeightGradientRows {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows_before = 0;
  int32_t begins = 1;
  int32_t ends = 1;
  int64_t leaf = 0;  // its number: the detail of a fault
};

// Where the gradients of W [n, k] of all leaves of one micro-batch go.
struct WeightGradientSink {
  float* carry = nullptr;      // [n, k]: needed when a leaf does not begin or does not end here
  float* chunk_sum = nullptr;  // [n, k]: and when such a leaf has more than kGradientChunk rows
  int64_t* image = nullptr;    // [n, k]: += gradient_to_fixed(result) of each leaf that ends
  float bound = 0;             // exclusive bound of |result|
  cuda::Fault fault;           // an element out of range is not added and reported as fault.key + detail:
  int fault_leaf_shift = 0;    // detail = (number of the leaf) << fault_leaf_shift
};

// `leaves` is a device array, in the order of the update: only the first may not begin here, only the last
// may not end here. One launch.
void matmul_weight_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy,
                                      const float* x, int64_t ldx, int64_t n, int64_t k,
                                      const WeightGradientRows* leaves, int64_t n_leaves,
                                      const WeightGradientSink& sink);

}  // namespace lockstep::ops
