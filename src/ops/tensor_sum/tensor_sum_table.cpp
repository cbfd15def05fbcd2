// SPDX-License-Identifier: Apache-2.0
#include "numerics/constants.h"
#include "ops/tensor_sum/tensor_sum_cuda.h"

namespace lockstep::ops {

void add_tensor(TensorSumTable* table, int64_t offset, int64_t size) {
  table->slices.push_back({offset, size, table->blocks});
  table->blocks += (size + numerics::kTensorSumBlock - 1) / numerics::kTensorSumBlock;
}

}  // namespace lockstep::ops
