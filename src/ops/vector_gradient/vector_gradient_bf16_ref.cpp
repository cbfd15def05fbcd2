// SPDX-License-Identifier: Apache-2.0
#include "ops/vector_gradient/vector_gradient_bf16.h"

#include <algorithm>
#include <cmath>

#include "numerics/constants.h"
#include "numerics/fixed_point.h"

namespace lockstep::ops {

using numerics::Bf16;
using numerics::bfloat16_to_float;

namespace {

bool add_piece(float piece, float bound, int64_t* image) {
  if (!numerics::in_gradient_range(piece, bound)) return false;
  *image += numerics::gradient_to_fixed(piece);
  return true;
}

}  // namespace

bool gain_gradient_bf16_ref(const Bf16* dy, const Bf16* x, const float* inverse_rms, int64_t h,
                            const SampleRows* samples, int64_t n_samples, float bound, int64_t* image) {
  bool in_range = true;
  for (int64_t s = 0; s < n_samples; ++s) {
    for (int64_t first = samples[s].begin; first < samples[s].end; first += numerics::kVectorPiece) {
      const int64_t last = std::min(first + numerics::kVectorPiece, samples[s].end);
      for (int64_t j = 0; j < h; ++j) {
        float piece = 0.0F;
        for (int64_t t = first; t < last; ++t) {
          const float xr = bfloat16_to_float(x[t * h + j]) * inverse_rms[t];
          piece = std::fma(bfloat16_to_float(dy[t * h + j]), xr, piece);
        }
        in_range &= add_piece(piece, bound, image + j);
      }
    }
  }
  return in_range;
}

bool bias_gradient_bf16_ref(const Bf16* dy, int64_t lddy, int64_t n, const SampleRows* samples,
                            int64_t n_samples, float bound, int64_t* image) {
  bool in_range = true;
  for (int64_t s = 0; s < n_samples; ++s) {
    for (int64_t first = samples[s].begin; first < samples[s].end; first += numerics::kVectorPiece) {
      const int64_t last = std::min(first + numerics::kVectorPiece, samples[s].end);
      for (int64_t j = 0; j < n; ++j) {
        float piece = 0.0F;
        for (int64_t t = first; t < last; ++t) piece = piece + bfloat16_to_float(dy[t * lddy + j]);
        in_range &= add_piece(piece, bound, image + j);
      }
    }
  }
  return in_range;
}

}  // namespace lockstep::ops
