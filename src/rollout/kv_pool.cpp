// SPDX-License-Identifier: Apache-2.0
#include "rollout/kv_pool.h"

#include <algorithm>

#include "core/check.h"

namespace lockstep::rollout {

int32_t KvPool::take() {
  if (capacity_ > 0 && used_ >= capacity_) return -1;
  int32_t page = 0;
  if (free_.empty()) {
    page = static_cast<int32_t>(references_.size());
    references_.push_back(0);
    decoder_->ensure_pages(page + 1);
  } else {
    page = free_.back();
    free_.pop_back();
  }
  references_[static_cast<size_t>(page)] = 1;
  peak_ = std::max(peak_, ++used_);
  return page;
}

int32_t KvPool::allocate() {
  const int32_t page = take();
  if (page >= 0) decoder_->clear_page(page);
  return page;
}

int32_t KvPool::clone(int32_t page) {
  const int32_t copy = take();
  if (copy >= 0) decoder_->copy_page(page, copy);
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
