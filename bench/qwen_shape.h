// SPDX-License-Identifier: Apache-2.0
// The shape that whole steps are measured in: Qwen2.5-0.5B.
#pragma once

#include "model/config.h"

namespace lockstep::bench {

inline model::ModelConfig qwen_half_billion(int64_t max_positions) {
  model::ModelConfig c;
  c.layers = 24;
  c.hidden = 896;
  c.intermediate = 4864;
  c.heads = 14;
  c.kv_heads = 2;
  c.head_size = 64;
  c.vocab = 151936;
  c.max_positions = max_positions;
  c.rope_base = 1e6;
  c.tied = true;
  return c;
}

}  // namespace lockstep::bench
