// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "numerics/constants.h"
#include "ops/vector_gradient/vector_gradient.h"
#include "ops/vector_gradient/vector_gradient_cuda.h"

namespace lockstep::ops {

std::vector<VectorPiece> vector_pieces(const SampleRows* samples, int64_t n_samples) {
  std::vector<VectorPiece> pieces;
  for (int64_t s = 0; s < n_samples; ++s) {
    for (int64_t first = samples[s].begin; first < samples[s].end; first += numerics::kVectorPiece) {
      const int64_t last = std::min(first + numerics::kVectorPiece, samples[s].end);
      pieces.push_back({static_cast<int32_t>(first), static_cast<int32_t>(last)});
    }
  }
  return pieces;
}

}  // namespace lockstep::ops
