// SPDX-License-Identifier: Apache-2.0
// What an instruction set supplies to the blocked products: register tiles and their way to memory. A tile is
// `rows` x `width` results of chains that all take the same steps; in scratch memory it lies contiguous,
// [rows][width], 64-byte aligned. Nothing in this header may have a body: it is included by files compiled
// for different instruction sets.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// out = chains over `steps` of fma(a, b, acc) from `in` (null: from +0). a: [steps][rows], b: [steps][width].
// in may be out. While it computes it asks for the 64-byte lines from `next` on, `lines` of them in 16 steps:
// the operand of the next calls.
using TileKernel = void (*)(int64_t steps, const float* a, const float* b, const float* in, float* out,
                            const char* next, int64_t lines);

// As TileKernel for a few rows of x and several panels at once, x unpacked: out holds a tile a panel. Panels
// lie panel_stride elements apart.
using SkinnyKernel = void (*)(int64_t steps, const float* x, int64_t ldx, const float* panels,
                              int64_t panel_stride, float* out);

// acc = chains over `steps` of fma(a, b, acc), b being rows of a plain matrix, ldb elements apart and not
// aligned.
using DirectKernel = void (*)(int64_t steps, const float* a, const float* b, int64_t ldb, float* acc);

// The same for one row of dy and all columns at once: acc[j] = chain over `steps` of fma(a[t], b[t][j],
// acc[j]). Nothing need be aligned.
using StreamKernel = void (*)(int64_t steps, const float* a, const float* b, int64_t ldb, int64_t columns,
                              float* acc);

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileWidth = 32;
inline constexpr int kMaxSkinnyRows = 4;
inline constexpr int kMaxSkinnyPanels = 8;

struct MatmulKernels {
  int64_t rows;   // the tallest tile
  int64_t width;  // of every tile
  TileKernel tile[kMaxTileRows + 1];
  int64_t skinny_panels[kMaxSkinnyRows + 1];  // the most panels at once for so many rows
  SkinnyKernel skinny[kMaxSkinnyRows + 1][kMaxSkinnyPanels + 1];
  DirectKernel direct[kMaxTileRows + 1];
  StreamKernel stream;
  // sum += acc over count elements, a multiple of the width.
  void (*add_to_sum)(const float* acc, int64_t count, float* sum);
  // y = residual + (tile + bias) over rows x columns (columns <= width); bias and residual may be null.
  void (*store)(const float* tile, int64_t rows, int64_t columns, const float* bias, const float* residual,
                int64_t ld_residual, float* y, int64_t ldy);
  // image += gradient_to_fixed(tile); false when an element is not in_gradient_range (it is left out).
  bool (*add_to_image)(const float* tile, int64_t rows, int64_t columns, float bound, int64_t* image,
                       int64_t ld);
};

const MatmulKernels& matmul_kernels_portable();
// Null where the program was built for another processor.
const MatmulKernels* matmul_kernels_avx2();
const MatmulKernels* matmul_kernels_avx512();

// add_to_image an element at a time, for edges and large values.
bool add_to_image_scalar(const float* tile, int64_t rows, int64_t columns, int64_t width, float bound,
                         int64_t* image, int64_t ld);

}  // namespace lockstep::ops
