// SPDX-License-Identifier: Apache-2.0
// Descriptors of weight matrices whose rows are copied in pairs. Host code.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "numerics/bfloat16.h"

namespace lockstep::ops {

// Boxes of [box_rows][64 columns] of a row-major matrix without gaps, 128-byte swizzle; zeros outside. half >
// 0: boxes of [box_rows][2][64 columns], row r of each 2 * half rows and row r + half of them side by side.
// Dimensions: columns, which half, row, which 2 * half rows. Made once for each matrix and box, then kept.
CUtensorMap pair_map(const numerics::Bf16* data, int64_t rows, int64_t columns, int64_t half, int box_rows);

}  // namespace lockstep::ops
