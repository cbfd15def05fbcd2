// SPDX-License-Identifier: Apache-2.0
// RoPE in profile bf16: from binary32 (a product's chunk sums and bias, or a scaled gradient) to bfloat16,
// one rounding.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"
#include "ops/rope/rope.h"

namespace lockstep::ops {

// out = bf16(x rotated) for `heads` consecutive heads of each row; rows of x start at x + row*ldx, of out at
// out + row*ldo. positions and inverse as in rope.h.
void rope_bf16_ref(const RopeTable& table, const int32_t* positions, int64_t rows, int64_t heads,
                   bool inverse, const float* x, int64_t ldx, numerics::Bf16* out, int64_t ldo);

}  // namespace lockstep::ops
