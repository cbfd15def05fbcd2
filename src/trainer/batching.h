// SPDX-License-Identifier: Apache-2.0
// The cut of an update into leaves and micro-batches. Leaves fix the order of additions; micro-batches do
// not.
#pragma once

#include <cstdint>
#include <vector>

#include "model/leaf_rows.h"
#include "trainer/trainer.h"

namespace lockstep::trainer {

// A sample that carries a gradient.
struct Member {
  int64_t sample = 0;  // index in the update
  int64_t leaf = 0;
  int64_t rows = 0;       // input tokens: all but the last
  int64_t loss_rows = 0;  // response tokens
};

struct UpdatePlan {
  std::vector<Member> members;                     // canonical order
  std::vector<std::vector<size_t>> micro_batches;  // indices into members
  int64_t total_tokens = 0;                        // T, of all samples of the update
  int64_t loss_tokens = 0;                         // response tokens of all samples
  int64_t micro_batch_rows = 0;                    // of the largest, with padding
};

// Samples without a gradient by rule (policy loss, advantage 0, no KL, no entropy term) count in the cut and
// the normaliser but are no members. pad: rows of a sample are counted up to a multiple of it. A micro-batch
// ends with a leaf where the next leaf fits a micro-batch but not the rest of this one: a leaf that is not
// cut keeps nothing between micro-batches.
UpdatePlan plan_update(const UpdateRequest& request, const UpdateConfig& config, int64_t pad);

inline int64_t padded_rows(int64_t rows, int64_t pad) {
  return (rows + pad - 1) / pad * pad;
}

// Cuts rows that arrive micro-batch by micro-batch into leaves, for one kind of row (input rows or loss
// rows).
class LeafCursor {
 public:
  enum class Rows { kInput, kLoss };
  // pad: rows of a sample are counted up to a multiple of it.
  LeafCursor(const UpdatePlan& plan, Rows kind, int64_t pad);
  // The leaves of the next members, rows counted from 0; call in order of the micro-batches.
  std::vector<model::LeafRows> next(const std::vector<size_t>& members);

 private:
  int64_t rows_of(const Member& member) const {
    return padded_rows(kind_ == Rows::kInput ? member.rows : member.loss_rows, pad_);
  }

  const UpdatePlan& plan_;
  Rows kind_;
  int64_t pad_;
  std::vector<int64_t> leaf_rows_;  // of each leaf in all
  std::vector<int64_t> done_;       // of each leaf so far
};

}  // namespace lockstep::trainer
