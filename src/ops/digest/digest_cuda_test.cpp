// SPDX-License-Identifier: Apache-2.0
#include "ops/digest/digest_cuda.h"

#include "cuda_arrays.h"
#include "numerics/digest.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;
using lockstep::testing::TestRandom;
using numerics::Digest128;

TEST(DigestCuda, EqualsDigestBytes) {
  LOCKSTEP_NEEDS_GPU();
  // The first two tensors are aligned; the odd ones after them are not.
  const std::vector<int64_t> sizes = {4096,  400000, 0,       1,  7,    4095,    4097,   32768, 32769, 0,
                                      65536, 100001, 1000000, 12, 4096, 3000003, 131072, 5,     0};
  int64_t n = 0;
  for (const int64_t size : sizes) n += size;
  std::vector<uint8_t> bytes(static_cast<size_t>(n));
  TestRandom random(1);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.next());
  for_each_cuda_context([&](const cuda::Context& context) {
    OnDevice<uint8_t> data(context, bytes);
    DigestTable table;
    std::vector<Digest128> want;
    int64_t at = 0;
    for (const int64_t size : sizes) {
      add_tensor(&table, data.data() + at, size);
      want.push_back(numerics::digest_bytes(bytes.data() + at, static_cast<size_t>(size)));
      at += size;
    }
    OnDevice<DigestSlice> slices(context, table.slices);
    OnDevice<Digest128> digests(context, static_cast<int64_t>(sizes.size()));
    digest_tensors_cuda(context, slices.data(), static_cast<int64_t>(sizes.size()), table.groups,
                        digests.data());
    const std::vector<Digest128> got = digests.host();
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(want[i].hex(), got[i].hex()) << sizes[i];
  });
}

TEST(DigestCuda, NoTensors) {
  LOCKSTEP_NEEDS_GPU();
  const cuda::Context context(0);
  digest_tensors_cuda(context, nullptr, 0, 0, nullptr);
  context.synchronize();
}

}  // namespace
}  // namespace lockstep::ops
