// SPDX-License-Identifier: Apache-2.0
// Memory of the blocked products. Blocks are meant to fill most of a cache; spread over small pages they
// collide in it by chance, so that the same program runs at one speed today and another tomorrow.
#pragma once

#include <cstdint>

#include "core/buffer.h"

namespace lockstep::ops {

// Asks the system for large pages where it has them. Changes nothing else.
void prefer_large_pages(void* begin, int64_t bytes);

// Asks for the line of `at`. The empty statement has an effect in the compiler's eyes: GCC drops calls of
// functions that only prefetch.
inline void prefetch_line(const void* at) {
  __builtin_prefetch(at);
  asm volatile("" : : "r"(at));
}

// One growing array a thread, in large pages, handed out in pieces.
class ScratchMemory {
 public:
  // `count` floats from the start of the array; contents are lost when it grows.
  float* take(int64_t count);

 private:
  Buffer<float> memory_;
  float* begin_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace lockstep::ops
