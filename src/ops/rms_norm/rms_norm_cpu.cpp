// SPDX-License-Identifier: Apache-2.0
// Rows in parallel; the 128 lanes of a sum are an array that the compiler keeps in vector registers.
#include <algorithm>
#include <cmath>

#include "numerics/reduce.h"
#include "ops/rms_norm/rms_norm.h"

namespace lockstep::ops {
namespace {

using numerics::kSumLanes;

// Rows a task: enough work to pay for waking a thread.
int64_t rows_per_task(int64_t h) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, h));
}

// Sum of (dy*gain) * (x*r) in the order of row_dot.
float scaled_dot(const float* __restrict dy, const float* __restrict gain, const float* __restrict x, float r,
                 int64_t h) {
  float lanes[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= h; i += kSumLanes) {
    for (int lane = 0; lane < kSumLanes; ++lane)
      lanes[lane] = std::fma(dy[i + lane] * gain[i + lane], x[i + lane] * r, lanes[lane]);
  }
  for (int lane = 0; i + lane < h; ++lane)
    lanes[lane] = std::fma(dy[i + lane] * gain[i + lane], x[i + lane] * r, lanes[lane]);
  return numerics::fold_lanes(lanes);
}

void forward_row(const float* __restrict x, const float* __restrict gain, float r, int64_t h,
                 float* __restrict y) {
  for (int64_t i = 0; i < h; ++i) y[i] = (x[i] * r) * gain[i];
}

void backward_row(const float* __restrict dy, const float* __restrict x, const float* __restrict gain,
                  float r, float c, int64_t h, float* __restrict dh) {
  for (int64_t i = 0; i < h; ++i) dh[i] = dh[i] + r * std::fma(-(x[i] * r), c, dy[i] * gain[i]);
}

}  // namespace

void rms_norm_forward_cpu(const cpu::Context& context, const float* x, const float* gain, float eps,
                          int64_t rows, int64_t h, float* y, float* inverse_rms) {
  context.parallel_ranges(rows, rows_per_task(h), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* in = x + row * h;
      const float r = 1.0F / std::sqrt(numerics::row_dot(in, in, h) / static_cast<float>(h) + eps);
      forward_row(in, gain, r, h, y + row * h);
      if (inverse_rms != nullptr) inverse_rms[row] = r;
    }
  });
}

void rms_norm_backward_cpu(const cpu::Context& context, const float* dy, const float* x, const float* gain,
                           const float* inverse_rms, int64_t rows, int64_t h, float* dh) {
  context.parallel_ranges(rows, rows_per_task(h), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float r = inverse_rms[row];
      const float c = scaled_dot(dy + row * h, gain, x + row * h, r, h) / static_cast<float>(h);
      backward_row(dy + row * h, x + row * h, gain, r, c, h, dh + row * h);
    }
  });
}

}  // namespace lockstep::ops
