// SPDX-License-Identifier: Apache-2.0
// RoPE on the GPU: the bits of rope.h and rope_bf16.h. Pointers are device pointers.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"

namespace lockstep::ops {

// The tables of RopeTable, copied to the device.
struct RopeDeviceTable {
  int64_t head_size = 0;
  const float* cos = nullptr;  // [positions, head_size/2]
  const float* sin = nullptr;
};

// `heads` consecutive heads of each row, in place: rows of x start at x + row*ldx.
void rope_fp32_cuda(const cuda::Context& context, const RopeDeviceTable& table, const int32_t* positions,
                    int64_t rows, int64_t heads, bool inverse, float* x, int64_t ldx);

// From binary32 rows x + row*ldx to bfloat16 rows out + row*ldo. They may not overlap.
void rope_bf16_cuda(const cuda::Context& context, const RopeDeviceTable& table, const int32_t* positions,
                    int64_t rows, int64_t heads, bool inverse, const float* x, int64_t ldx,
                    numerics::Bf16* out, int64_t ldo);

}  // namespace lockstep::ops
