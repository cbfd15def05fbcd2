// SPDX-License-Identifier: Apache-2.0
#include "rollout/kv_pool.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace lockstep::rollout {

int32_t KvPool::allocate() {
  if (capacity_ > 0 && used_ >= capacity_) return -1;
  int32_t page = 0;
  if (free_.empty()) {
    page = static_cast<int32_t>(pages_.size());
    pages_.emplace_back(page_floats_);
    references_.push_back(0);
  } else {
    page = free_.back();
    free_.pop_back();
  }
  pages_[static_cast<size_t>(page)].fill_zero();
  references_[static_cast<size_t>(page)] = 1;
  peak_ = std::max(peak_, ++used_);
  return page;
}

int32_t KvPool::clone(int32_t page) {
  const int32_t copy = allocate();
  if (copy >= 0) std::memcpy(data(copy), data(page), static_cast<size_t>(page_floats_) * sizeof(float));
  return copy;
}

void KvPool::release(int32_t page) {
  int32_t& count = references_[static_cast<size_t>(page)];
  LOCKSTEP_CHECK(count > 0);
  if (--count == 0) {
    free_.push_back(page);
    --used_;
  }
}

}  // namespace lockstep::rollout
