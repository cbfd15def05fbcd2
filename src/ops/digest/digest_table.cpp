// SPDX-License-Identifier: Apache-2.0
#include "ops/digest/digest_cuda.h"
#include "ops/digest/digest_group.h"

namespace lockstep::ops {

void add_tensor(DigestTable* table, const void* data, int64_t bytes) {
  table->slices.push_back({data, bytes, table->groups});
  table->groups += (bytes + kDigestGroupBytes - 1) / kDigestGroupBytes;
}

}  // namespace lockstep::ops
