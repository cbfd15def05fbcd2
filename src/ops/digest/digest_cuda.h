// SPDX-License-Identifier: Apache-2.0
// Tensor digests (numerics/digest.h) of data in device memory, many tensors in one launch: each equals
// digest_bytes of the same bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/context.h"

namespace lockstep::numerics {
struct Digest128;
}

namespace lockstep::ops {

// One tensor. data: device pointer, of any alignment (fastest: 16 bytes).
struct DigestSlice {
  const void* data = nullptr;
  int64_t bytes = 0;
  int64_t first_group = 0;  // groups of blocks in the tensors before it
};
// {data, bytes} of the tensors -> the table, for the host to copy to the device.
struct DigestTable {
  std::vector<DigestSlice> slices;
  int64_t groups = 0;  // of all tensors
};
void add_tensor(DigestTable* table, const void* data, int64_t bytes);

// slices: device array of n; groups: DigestTable::groups. digests: device array of n, overwritten.
void digest_tensors_cuda(const cuda::Context& context, const DigestSlice* slices, int64_t n, int64_t groups,
                         numerics::Digest128* digests);

}  // namespace lockstep::ops
