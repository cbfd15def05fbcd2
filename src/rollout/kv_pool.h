// SPDX-License-Identifier: Apache-2.0
// Pages of keys and values, 64 positions of all layers each, counted by reference (a prefix is shared by the
// samples of its prompt). The contents are the decoder's. Pages come zero-filled.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"

namespace lockstep::rollout {

class KvPool {
 public:
  // capacity_pages 0: no limit but memory.
  KvPool(model::Decoder* decoder, int64_t capacity_pages) : decoder_(decoder), capacity_(capacity_pages) {}

  // A page with one reference, or -1 when the capacity is reached.
  int32_t allocate();
  // A copy of `page` with one reference, or -1.
  int32_t clone(int32_t page);
  void share(int32_t page) { ++references_[static_cast<size_t>(page)]; }
  void release(int32_t page);

  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  int64_t capacity() const { return capacity_; }

 private:
  int32_t take();

  model::Decoder* decoder_;
  int64_t capacity_;
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace lockstep::rollout
