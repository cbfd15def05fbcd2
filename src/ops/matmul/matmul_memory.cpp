// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace lockstep::ops {
namespace {

constexpr int64_t kLargePage = int64_t{2} << 20;

}  // namespace

void prefer_large_pages(void* begin, int64_t bytes) {
#if defined(__linux__)
  const auto start = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (start + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t last = (start + static_cast<uintptr_t>(bytes)) / kLargePage * kLargePage;
  if (first >= last) return;
  // Advice only: a refusal leaves small pages.
  (void)madvise(static_cast<char*>(begin) + (first - start), last - first, MADV_HUGEPAGE);
#else
  (void)begin;
  (void)bytes;
#endif
}

float* ScratchMemory::take(int64_t count) {
  constexpr int64_t kPageFloats = kLargePage / static_cast<int64_t>(sizeof(float));
  if (count > size_) {
    size_ = (count + kPageFloats - 1) / kPageFloats * kPageFloats;
    memory_ = Buffer<float>();
    memory_ = Buffer<float>(size_ + kPageFloats);
    const uintptr_t first = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = memory_.data() + (kLargePage - first % kLargePage) % kLargePage / sizeof(float);
    prefer_large_pages(begin_, size_ * static_cast<int64_t>(sizeof(float)));
  }
  return begin_;
}

}  // namespace lockstep::ops
