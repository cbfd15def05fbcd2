// SPDX-License-Identifier: Apache-2.0
// Where the rows of a micro-batch stand in the chains of their leaves.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::model {

// Rows [begin, end) of a micro-batch's matrices that belong to one leaf, and where they stand in the leaf's
// chain.
struct LeafRows {
  int64_t leaf = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows_before = 0;  // of this leaf in earlier micro-batches
  bool begins = true;       // the leaf's first rows
  bool ends = true;         // the leaf's last rows
};

// The part of `leaves` within rows [begin, end), rows counted from `begin`.
std::vector<LeafRows> slice_leaves(const std::vector<LeafRows>& leaves, int64_t begin, int64_t end);

}  // namespace lockstep::model
