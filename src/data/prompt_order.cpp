// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "data/python_random.h"
#include "numerics/philox.h"

namespace lockstep::data {

Result<OrderKind> order_kind(bool shuffle, std::string_view data_order) {
  if (data_order != "lockstep" && data_order != "miles") {
    return invalid("--data-order {}: not known; it is lockstep or miles", data_order);
  }
  if (!shuffle) return OrderKind::kFile;
  return data_order == "miles" ? OrderKind::kMiles : OrderKind::kLockstep;
}

PromptOrder::PromptOrder(OrderKind kind, uint64_t seed, int64_t rows)
    : kind_(kind), seed_(seed), rows_(rows) {
  LOCKSTEP_CHECK(rows >= 1 && rows <= INT32_MAX, "rows of the prompt order");
}

const std::vector<int32_t>& PromptOrder::permutation(uint64_t epoch) {
  if (epoch_ == epoch) return permutation_;
  permutation_.resize(static_cast<size_t>(rows_));
  std::iota(permutation_.begin(), permutation_.end(), 0);
  if (kind_ == OrderKind::kMiles) {
    PythonRandom(seed_ + epoch).shuffle(permutation_);
  } else if (kind_ == OrderKind::kLockstep) {
    // Rows ascending by their draw; equal draws (never seen) keep the order of the file.
    std::vector<std::pair<uint64_t, int32_t>> keyed;
    keyed.reserve(permutation_.size());
    for (const int32_t row : permutation_) {
      keyed.emplace_back(numerics::draw(seed_, numerics::Purpose::kShuffle, static_cast<uint64_t>(row),
                                        static_cast<uint32_t>(epoch), 0),
                         row);
    }
    std::sort(keyed.begin(), keyed.end());
    for (size_t i = 0; i < keyed.size(); ++i) permutation_[i] = keyed[i].second;
  }
  epoch_ = epoch;
  return permutation_;
}

int64_t PromptOrder::row_at(uint64_t ordinal) {
  const auto place = static_cast<size_t>(ordinal % static_cast<uint64_t>(rows_));
  return permutation(epoch_of(ordinal))[place];
}

}  // namespace lockstep::data
