// SPDX-License-Identifier: Apache-2.0
// The definition of the bits: one chain at a time, as docs/numerics.md writes it.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul.h"

namespace lockstep::ops {
namespace {

using numerics::kForwardChunk;
using numerics::kGradientChunk;

// Chain over `length` steps in chunks, each from +0; the first chunk's sum is the start, the others are added
// ascending. a and b advance by their strides.
float chunked_chain(const float* a, int64_t stride_a, const float* b, int64_t stride_b, int64_t length,
                    int64_t chunk) {
  float sum = 0.0F;
  for (int64_t begin = 0; begin < length; begin += chunk) {
    float acc = 0.0F;
    const int64_t end = std::min(length, begin + chunk);
    for (int64_t i = begin; i < end; ++i) acc = std::fma(a[i * stride_a], b[i * stride_b], acc);
    sum = begin == 0 ? acc : sum + acc;
  }
  return sum;
}

// One element's chain over the rows of one call, from and to the target's carry and chunk sum.
float weight_chain(const float* dy, int64_t lddy, const float* x, int64_t ldx, int64_t rows,
                   const WeightGradientTarget& target, int64_t element) {
  const bool alone = target.begins && target.ends;
  float acc = target.begins ? 0.0F : target.carry[element];
  int64_t position = target.rows_before;
  float sum = position > kGradientChunk ? target.chunk_sum[element] : 0.0F;
  for (int64_t t = 0; t < rows; ++t, ++position) {
    if (position > 0 && position % kGradientChunk == 0) {  // a whole chunk lies behind: fold it
      sum = position == kGradientChunk ? acc : sum + acc;
      acc = 0.0F;
    }
    acc = std::fma(dy[t * lddy], x[t * ldx], acc);
  }
  if (!target.ends) {
    target.carry[element] = acc;
    if (!alone && position > kGradientChunk) target.chunk_sum[element] = sum;
  }
  return position > kGradientChunk ? sum + acc : acc;
}

}  // namespace

void matmul_forward_ref(const float* x, int64_t ldx, const float* w, int64_t m, int64_t n, int64_t k,
                        const MatmulEpilogue& epilogue, float* y, int64_t ldy) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float value = chunked_chain(x + i * ldx, 1, w + j * k, 1, k, kForwardChunk);
      if (epilogue.bias != nullptr) value = value + epilogue.bias[j];
      if (epilogue.residual != nullptr) value = epilogue.residual[i * epilogue.ld_residual + j] + value;
      y[i * ldy + j] = value;
    }
  }
}

void matmul_input_gradient_ref(const float* dy, int64_t lddy, const float* w, int64_t m, int64_t n, int64_t k,
                               float* dx, int64_t lddx) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j)
      dx[i * lddx + j] = chunked_chain(dy + i * lddy, 1, w + j, k, n, kGradientChunk);
  }
}

bool matmul_weight_gradient_ref(const float* dy, int64_t lddy, const float* x, int64_t ldx, int64_t rows,
                                int64_t n, int64_t k, const WeightGradientTarget& target) {
  LOCKSTEP_CHECK(!target.begins || target.rows_before == 0);
  bool in_range = true;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const float result = weight_chain(dy + i, lddy, x + j, ldx, rows, target, i * k + j);
      if (!target.ends) continue;
      if (numerics::in_gradient_range(result, target.bound)) {
        target.image[i * k + j] += numerics::gradient_to_fixed(result);
      } else {
        in_range = false;
      }
    }
  }
  return in_range;
}

}  // namespace lockstep::ops
