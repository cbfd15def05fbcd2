// SPDX-License-Identifier: Apache-2.0
// The square of the gradient's norm on the GPU: gradient_sum_of_squares of every tensor, tensors added from
// +0 in the order given (docs/numerics.md, Sums: by name).
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/context.h"

namespace lockstep::ops {

// One tensor of the image, and the number of blocks of a sum in the tensors before it.
struct TensorSumSlice {
  int64_t offset = 0;  // elements
  int64_t size = 0;
  int64_t first_block = 0;
};
// {offset, size} of the tensors in the order of their names -> the table, for the host to copy to the device.
struct TensorSumTable {
  std::vector<TensorSumSlice> slices;
  int64_t blocks = 0;  // of all tensors
};
void add_tensor(TensorSumTable* table, int64_t offset, int64_t size);

// slices: device array of n; blocks: TensorSumTable::blocks. total: device, one double, overwritten;
// per_tensor: device, [n] or null.
void gradient_sum_of_squares_cuda(const cuda::Context& context, const int64_t* image,
                                  const TensorSumSlice* slices, int64_t n, int64_t blocks, double* total,
                                  double* per_tensor);

}  // namespace lockstep::ops
