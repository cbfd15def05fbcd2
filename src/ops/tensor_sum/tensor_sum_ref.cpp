// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "numerics/fixed_point.h"
#include "numerics/reduce.h"
#include "ops/tensor_sum/tensor_sum.h"

namespace lockstep::ops {

double gradient_sum_of_squares_ref(const int64_t* image, int64_t n) {
  double sum = 0.0;
  for (int64_t first = 0; first < n; first += numerics::kTensorSumBlock) {
    const int64_t size = std::min(numerics::kTensorSumBlock, n - first);
    std::vector<double> g(size);
    for (int64_t i = 0; i < size; ++i) g[i] = numerics::gradient_from_fixed(image[first + i]);
    sum = sum + numerics::row_dot(g.data(), g.data(), size);
  }
  return sum;
}

}  // namespace lockstep::ops
