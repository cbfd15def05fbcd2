// SPDX-License-Identifier: Apache-2.0
// Descriptors of bfloat16 matrices for the bulk tensor copy. Host code.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "numerics/bfloat16.h"

namespace lockstep::ops {

// Boxes of [box_rows][64 columns] of a row-major matrix, 128-byte swizzle; zeros outside. Made once for each
// matrix and box, then kept.
CUtensorMap tensor_map(const numerics::Bf16* data, int64_t rows, int64_t columns, int64_t ld, int box_rows);

// Of a result or a residual: boxes of [64][box_columns], 64 bfloat16 or 32 binary32 columns with 128-byte
// swizzle, 32 bfloat16 with 64-byte. 16-byte aligned, rows too.
CUtensorMap result_map(const void* data, bool is_float, int64_t rows, int64_t columns, int64_t ld,
                       int box_columns);

}  // namespace lockstep::ops
