// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::cpu {
namespace {

TEST(CpuContext, EveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    const Context context(threads, isa_from_name("scalar").value());
    for (const int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      context.parallel_for(count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const auto& n : calls) EXPECT_EQ(n, 1);
    }
  }
}

// By a worker or by the calling thread: the others are out of their tasks before it is thrown on, and the
// context is as before.
TEST(CpuContext, WhatATaskThrowsIsThrown) {
  for (const int threads : {1, 2, 4}) {
    const Context context(threads, isa_from_name("scalar").value());
    const std::thread::id caller = std::this_thread::get_id();
    for (const bool by_caller : {true, false}) {
      if (threads == 1 && !by_caller) continue;
      std::atomic<int> inside{0};
      std::atomic<bool> threw{false};
      const auto task = [&](int64_t) {
        ++inside;
        if ((std::this_thread::get_id() == caller) == by_caller && !threw.exchange(true)) {
          --inside;
          throw std::bad_alloc();
        }
        // So long that a call which did not wait would return first.
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --inside;
      };
      EXPECT_THROW(context.parallel_for(1000, task), std::bad_alloc);
      EXPECT_EQ(inside, 0);
      std::atomic<int> calls{0};
      context.parallel_for(100, [&](int64_t) { ++calls; });
      EXPECT_EQ(calls, 100);
    }
  }
}

TEST(CpuContext, AllMayThrow) {
  const Context context(4, isa_from_name("scalar").value());
  for (int i = 0; i < 100; ++i)
    EXPECT_THROW(context.parallel_for(50, [](int64_t) { throw std::runtime_error("no"); }),
                 std::runtime_error);
}

}  // namespace
}  // namespace lockstep::cpu
