// SPDX-License-Identifier: Apache-2.0
// Columns in parallel: a thread owns its part of the image. A block of columns goes down the rows of a piece
// at once, each column its own chain.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "ops/vector_gradient/vector_gradient.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kColumns = 64;  // of a task

// One row into the chains of `columns` columns.
void gain_row(const float* __restrict dy, const float* __restrict x, float r, int64_t columns,
              float* __restrict chain) {
  for (int64_t j = 0; j < columns; ++j) chain[j] = std::fma(dy[j], x[j] * r, chain[j]);
}
void bias_row(const float* __restrict dy, int64_t columns, float* __restrict chain) {
  for (int64_t j = 0; j < columns; ++j) chain[j] = chain[j] + dy[j];
}

// Calls add_row(row, first column, columns, chain) for the rows of each piece, then rounds the piece.
template <typename AddRow>
bool pieces_to_image(const cpu::Context& context, int64_t n, const SampleRows* samples, int64_t n_samples,
                     float bound, int64_t* image, const AddRow& add_row) {
  std::atomic<bool> in_range = true;
  context.parallel_ranges(n, kColumns, [&](int64_t begin, int64_t end) {
    const int64_t columns = end - begin;
    bool all = true;
    for (int64_t s = 0; s < n_samples; ++s) {
      for (int64_t first = samples[s].begin; first < samples[s].end; first += numerics::kVectorPiece) {
        const int64_t last = std::min(first + numerics::kVectorPiece, samples[s].end);
        float chain[kColumns] = {};
        for (int64_t t = first; t < last; ++t) add_row(t, begin, columns, chain);
        for (int64_t j = 0; j < columns; ++j) {
          if (numerics::in_gradient_range(chain[j], bound)) {
            image[begin + j] += numerics::gradient_to_fixed(chain[j]);
          } else {
            all = false;
          }
        }
      }
    }
    if (!all) in_range = false;
  });
  return in_range;
}

}  // namespace

bool gain_gradient_cpu(const cpu::Context& context, const float* dy, const float* x, const float* inverse_rms,
                       int64_t h, const SampleRows* samples, int64_t n_samples, float bound, int64_t* image) {
  return pieces_to_image(context, h, samples, n_samples, bound, image,
                         [&](int64_t t, int64_t begin, int64_t columns, float* chain) {
                           gain_row(dy + t * h + begin, x + t * h + begin, inverse_rms[t], columns, chain);
                         });
}

bool bias_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, int64_t n,
                       const SampleRows* samples, int64_t n_samples, float bound, int64_t* image) {
  return pieces_to_image(context, n, samples, n_samples, bound, image,
                         [&](int64_t t, int64_t begin, int64_t columns, float* chain) {
                           bias_row(dy + t * lddy + begin, columns, chain);
                         });
}

}  // namespace lockstep::ops
