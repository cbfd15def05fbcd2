// SPDX-License-Identifier: Apache-2.0
// A task takes columns; their pieces are chains in registers or the nearest cache.
#include "ops/vector_gradient/vector_gradient_bf16_cpu.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "numerics/constants.h"
#include "numerics/fixed_point.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::bfloat16_to_float;

constexpr int64_t kColumns = 64;

// add(t, begin, count, piece): row t's part of columns [begin, begin + count).
template <class Add>
bool pieces(const cpu::Context& context, int64_t n, const SampleRows* samples, int64_t n_samples, float bound,
            int64_t* image, const Add& add) {
  std::atomic<bool> in_range{true};
  context.parallel_ranges(n, kColumns, [&](int64_t begin, int64_t end) {
    bool good = true;
    const int64_t count = end - begin;
    for (int64_t s = 0; s < n_samples; ++s) {
      for (int64_t row = samples[s].begin; row < samples[s].end; row += numerics::kVectorPiece) {
        float piece[kColumns] = {};
        const int64_t last = std::min(samples[s].end, row + numerics::kVectorPiece);
        for (int64_t t = row; t < last; ++t) add(t, begin, count, piece);
        for (int64_t j = 0; j < count; ++j) {
          if (numerics::in_gradient_range(piece[j], bound)) {
            image[begin + j] += numerics::gradient_to_fixed(piece[j]);
          } else {
            good = false;
          }
        }
      }
    }
    if (!good) in_range = false;
  });
  return in_range;
}

}  // namespace

bool gain_gradient_bf16_cpu(const cpu::Context& context, const Bf16* dy, const Bf16* x,
                            const float* inverse_rms, int64_t h, const SampleRows* samples, int64_t n_samples,
                            float bound, int64_t* image) {
  return pieces(context, h, samples, n_samples, bound, image,
                [&](int64_t t, int64_t begin, int64_t count, float* piece) {
                  const Bf16* a = dy + t * h + begin;
                  const Bf16* b = x + t * h + begin;
                  const float r = inverse_rms[t];
                  for (int64_t j = 0; j < count; ++j) {
                    piece[j] = std::fma(bfloat16_to_float(a[j]), bfloat16_to_float(b[j]) * r, piece[j]);
                  }
                });
}

bool bias_gradient_bf16_cpu(const cpu::Context& context, const Bf16* dy, int64_t lddy, int64_t n,
                            const SampleRows* samples, int64_t n_samples, float bound, int64_t* image) {
  return pieces(context, n, samples, n_samples, bound, image,
                [&](int64_t t, int64_t begin, int64_t count, float* piece) {
                  const Bf16* a = dy + t * lddy + begin;
                  for (int64_t j = 0; j < count; ++j) piece[j] = piece[j] + bfloat16_to_float(a[j]);
                });
}

}  // namespace lockstep::ops
