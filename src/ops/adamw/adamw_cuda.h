// SPDX-License-Identifier: Apache-2.0
// AdamW on the GPU: the bits of adamw.h and adamw_bf16.h, a whole arena in one launch. Pointers are device
// pointers to arenas of one layout, 16-byte aligned.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"
#include "ops/adamw/adamw_factors.h"

namespace lockstep::ops {

// Elements [offset, offset + size) of the arenas. Neighbours of one kind may be one slice.
struct AdamWSlice {
  int64_t offset = 0;
  int64_t size = 0;
  int64_t decays = 0;  // 0: weight decay is taken as +0
};

// slices: device array, ascending, not overlapping; elements in no slice stay as they are.
void adamw_fp32_cuda(const cuda::Context& context, const AdamWFactors& factors, const AdamWSlice* slices,
                     int64_t n_slices, int64_t arena_size, const int64_t* image, float* m, float* v,
                     float* w);
// Also writes weights = bf16(w).
void adamw_bf16_cuda(const cuda::Context& context, const AdamWFactors& factors, const AdamWSlice* slices,
                     int64_t n_slices, int64_t arena_size, const int64_t* image, float* m, float* v, float* w,
                     numerics::Bf16* weights);

}  // namespace lockstep::ops
