// SPDX-License-Identifier: Apache-2.0
// The shapes of attention; no other include, so that device code can have them.
#pragma once

#include <cstdint>

namespace lockstep::ops {

struct AttentionShape {
  int64_t heads = 0;      // query heads
  int64_t kv_heads = 0;   // divides heads
  int64_t head_size = 0;  // even, at most 256
};

// Whole samples: rows [begin, end) of every matrix are positions 0 .. of one sequence.
struct AttentionSample {
  int64_t begin;
  int64_t end;
};

}  // namespace lockstep::ops
