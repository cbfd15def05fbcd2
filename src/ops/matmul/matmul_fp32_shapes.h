// SPDX-License-Identifier: Apache-2.0
// Tile shapes of the fp32 products on a GPU. They change no bit: which one runs is a guess of the time; tests
// and benchmarks name one.
#pragma once

#include <cstdint>

#include "ops/matmul/matmul_cuda.h"

namespace lockstep::ops::fp32 {

enum class Shape {
  kAuto,
  k128x128,  // outputs a block: rows x columns
  k128x112,
  k128x96,
  k128x64,
  k64x64,
  k32x64,
  kSkinny,  // forward of at most kSkinnyRows rows: W streams once
};
inline constexpr int64_t kSkinnyRows = 16;

// The calls of matmul_cuda.h. kSkinny: forward only, m <= kSkinnyRows and aligned operands.
void forward(const cuda::Context& context, Shape shape, const float* x, int64_t ldx, const float* w,
             int64_t m, int64_t n, int64_t k, const MatmulEpilogue& epilogue, float* y, int64_t ldy);
void input_gradient(const cuda::Context& context, Shape shape, const float* dy, int64_t lddy, const float* w,
                    int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx);
void weight_gradient(const cuda::Context& context, Shape shape, const float* dy, int64_t lddy, const float* x,
                     int64_t ldx, int64_t n, int64_t k, const WeightGradientRows* leaves, int64_t n_leaves,
                     const WeightGradientSink& sink);

}  // namespace lockstep::ops::fp32
