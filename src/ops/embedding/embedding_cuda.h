// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding matrix and their gradient on the GPU: the bits of embedding.h and embedding_bf16.h.
// Pointers are device pointers.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"

namespace lockstep::ops {

// out[r, :] = table[ids[r], :]; padding rows have any valid id, or a negative one for a row of zeros.
void embedding_forward_fp32_cuda(const cuda::Context& context, const float* table, const int32_t* ids,
                                 int64_t rows, int64_t h, float* out);
void embedding_forward_bf16_cuda(const cuda::Context& context, const numerics::Bf16* table,
                                 const int32_t* ids, int64_t rows, int64_t h, numerics::Bf16* out);

// image[ids[r], :] += gradient_to_fixed(dh[r, :]) for every row r with an id >= 0 (padding rows: -1). An
// element out of range is reported to fault (detail 0) and not added.
void embedding_gradient_fp32_cuda(const cuda::Context& context, const float* dh, const int32_t* ids,
                                  int64_t rows, int64_t h, float bound, int64_t* image,
                                  const cuda::Fault& fault);
void embedding_gradient_bf16_cuda(const cuda::Context& context, const numerics::Bf16* dh, const int32_t* ids,
                                  int64_t rows, int64_t h, float bound, int64_t* image,
                                  const cuda::Fault& fault);

}  // namespace lockstep::ops
