// SPDX-License-Identifier: Apache-2.0
#include "model/leaf_rows.h"

#include <algorithm>

namespace lockstep::model {

std::vector<LeafRows> slice_leaves(const std::vector<LeafRows>& leaves, int64_t begin, int64_t end) {
  std::vector<LeafRows> out;
  for (const LeafRows& leaf : leaves) {
    const int64_t first = std::max(begin, leaf.begin);
    const int64_t last = std::min(end, leaf.end);
    if (first >= last) continue;
    LeafRows part = leaf;
    part.begin = first - begin;
    part.end = last - begin;
    part.rows_before = leaf.rows_before + (first - leaf.begin);
    part.begins = leaf.begins && first == leaf.begin;
    part.ends = leaf.ends && last == leaf.end;
    out.push_back(part);
  }
  return out;
}

}  // namespace lockstep::model
