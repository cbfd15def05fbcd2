// SPDX-License-Identifier: Apache-2.0
// The forward product of few rows (tokens): matmul_forward_bf16_cuda calls it.
#pragma once

#include "ops/matmul/matmul_bf16_cuda.h"

namespace lockstep::ops {

// Whether this way is the better one for the shape. More rows of a wide matrix are tiles enough for the other
// kernel.
bool matmul_decodes(const cuda::Context& context, int64_t m, int64_t n);

// m up to kMatmulDecodeRows.
void matmul_decode_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                             int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);
int64_t matmul_decode_bf16_scratch(const cuda::Context& context, int64_t m, int64_t n, int64_t k,
                                   int64_t chunk);

}  // namespace lockstep::ops
