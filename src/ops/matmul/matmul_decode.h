// SPDX-License-Identifier: Apache-2.0
// The forward product of few rows (tokens): matmul_forward_bf16_cuda calls it.
#pragma once

#include "ops/matmul/matmul_bf16_cuda.h"

namespace lockstep::ops {

// Whether this way is the better one for the shape. More rows of a wide matrix are tiles enough for the other
// kernel.
bool matmul_decodes(const cuda::Context& context, int64_t m, int64_t n);

// Tiles that share copies: outputs of a layer, m up to kMatmulDecodeRows, as few rows of W as make one round
// of tiles, few chunks.
inline constexpr int64_t kMatmulDecodeTileColumns = 20480;
bool matmul_decode_tiles(int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);
void matmul_decode_tile_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                                  int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);

// Products for which matmul_makes_tiles(): x stays in shared memory. Fewer columns than kMatmulTilesColumns
// are too few tiles for all multiprocessors.
inline constexpr int64_t kMatmulTilesColumns = 16384;
void matmul_vocabulary_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                                 int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);

// m up to kMatmulDecodeRows.
void matmul_decode_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                             int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward);
int64_t matmul_decode_bf16_scratch(const cuda::Context& context, int64_t m, int64_t n, int64_t k,
                                   int64_t chunk);

}  // namespace lockstep::ops
