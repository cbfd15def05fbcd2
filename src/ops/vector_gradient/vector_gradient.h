// SPDX-License-Identifier: Apache-2.0
// Gradients of vectors (norm gains, biases): each sample's rows are cut into pieces of 64 from its start; a
// piece is one binary32 chain, rounded into the integer image. Pieces commute, so any split over calls gives
// the same image.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"

namespace lockstep::ops {

// Rows [begin, end) of the matrices are one sample, from its first row.
struct SampleRows {
  int64_t begin;
  int64_t end;
};

// gain: piece[j] = chain over rows t of fma(dy[t,j], x[t,j]*r[t], piece[j]) from +0; image[j] +=
// fixed(piece[j]). Returns false when a piece is out of range (bound: gradient_bound of all tokens of the
// step); it is then not added.
[[nodiscard]] bool gain_gradient_ref(const float* dy, const float* x, const float* inverse_rms, int64_t h,
                                     const SampleRows* samples, int64_t n_samples, float bound,
                                     int64_t* image);
[[nodiscard]] bool gain_gradient_cpu(const cpu::Context& context, const float* dy, const float* x,
                                     const float* inverse_rms, int64_t h, const SampleRows* samples,
                                     int64_t n_samples, float bound, int64_t* image);

// bias: piece[j] = piece[j] + dy[t,j] from +0. dy [rows, n] with row stride lddy.
[[nodiscard]] bool bias_gradient_ref(const float* dy, int64_t lddy, int64_t n, const SampleRows* samples,
                                     int64_t n_samples, float bound, int64_t* image);
[[nodiscard]] bool bias_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, int64_t n,
                                     const SampleRows* samples, int64_t n_samples, float bound,
                                     int64_t* image);

}  // namespace lockstep::ops
