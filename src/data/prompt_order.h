// SPDX-License-Identifier: Apache-2.0
// Which row of the prompt data comes when. A pure function of (kind, seed, rows): a resumed run, another
// batch size or another number of ranks continues the same list.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lockstep::data {

enum class OrderKind {
  kFile,      // rows as they stand, again and again
  kLockstep,  // per epoch: rows sorted by a keyed 64-bit draw
  kMiles,     // per epoch: Python's random.seed(seed + epoch); random.shuffle(list(range(rows)))
};

// --rollout-shuffle and --data-order ("lockstep" or "miles").
Result<OrderKind> order_kind(bool shuffle, std::string_view data_order);

class PromptOrder {
 public:
  // rows >= 1 and below 2^32.
  PromptOrder(OrderKind kind, uint64_t seed, int64_t rows);

  // The row at a place counted from the start of the run across epochs: epoch = ordinal / rows. Not safe from
  // several threads at once (it keeps the last epoch's permutation).
  int64_t row_at(uint64_t ordinal);
  uint64_t epoch_of(uint64_t ordinal) const { return ordinal / static_cast<uint64_t>(rows_); }
  // All rows of an epoch, in order; valid until the next call.
  const std::vector<int32_t>& permutation(uint64_t epoch);

 private:
  OrderKind kind_;
  uint64_t seed_;
  int64_t rows_;
  std::optional<uint64_t> epoch_;
  std::vector<int32_t> permutation_;
};

}  // namespace lockstep::data
