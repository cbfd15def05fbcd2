// SPDX-License-Identifier: Apache-2.0
#include "loop/memory.h"

#include <gtest/gtest.h>

namespace lockstep::loop {
namespace {

TEST(HostMemory, IsRefusedWithTheArithmetic) {
  constexpr int64_t kGib = int64_t{1} << 30;
  RunMemory memory;
  memory.host = {{"weights", 3 * kGib}, {"nothing", 0}, {"keys and values", 6 * kGib}};
  memory.remedy = "lower --max-running-requests (now 9)";
  EXPECT_TRUE(check_host_memory(9 * kGib, memory).ok());
  EXPECT_TRUE(check_host_memory(0, memory).ok());
  const Status status = check_host_memory(8 * kGib, memory);
  EXPECT_EQ(status.code(), StatusCode::kInvalid);
  EXPECT_EQ(
      status.message(),
      "needs 9.0 GiB of memory at most (weights 3.0, keys and values 6.0), this machine has 8.0 with swap; "
      "lower --max-running-requests (now 9), or lower the batch");
}

}  // namespace
}  // namespace lockstep::loop
