// SPDX-License-Identifier: Apache-2.0
// Gradients of vectors on the GPU: the bits of vector_gradient.h and vector_gradient_bf16.h. Pointers are
// device pointers.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"

namespace lockstep::ops {

struct SampleRows;

// Rows [begin, end) of one chain.
struct VectorPiece {
  int32_t begin;
  int32_t end;
};
// The pieces of whole samples, for the host to copy to the device once a micro-batch.
std::vector<VectorPiece> vector_pieces(const SampleRows* samples, int64_t n_samples);

// image[j] += fixed(piece's chain of column j) for each of n pieces [device array]. A chain out of range is
// reported to fault (detail 0) and not added.
void gain_gradient_fp32_cuda(const cuda::Context& context, const float* dy, const float* x,
                             const float* inverse_rms, int64_t h, const VectorPiece* pieces, int64_t n_pieces,
                             float bound, int64_t* image, const cuda::Fault& fault);
void gain_gradient_bf16_cuda(const cuda::Context& context, const numerics::Bf16* dy, const numerics::Bf16* x,
                             const float* inverse_rms, int64_t h, const VectorPiece* pieces, int64_t n_pieces,
                             float bound, int64_t* image, const cuda::Fault& fault);
void bias_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy, int64_t n,
                             const VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
                             const cuda::Fault& fault);
void bias_gradient_bf16_cuda(const cuda::Context& context, const numerics::Bf16* dy, int64_t lddy, int64_t n,
                             const VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
                             const cuda::Fault& fault);

}  // namespace lockstep::ops
