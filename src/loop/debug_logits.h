// SPDX-License-Identifier: Apache-2.0
// Logits, loss, gradients and greedy continuation of given tokens, for comparison with other implementations.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

struct DebugLogitsConfig {
  std::string hf_checkpoint;
  model::Profile profile = model::Profile::kFp32;
  std::string tokens;  // safetensors with `tokens` int32 or int64 [B, T]; nothing else in it is read
  std::string out;     // safetensors
  bool grads = false;
  int64_t greedy = 0;      // N new tokens after the first prompt_len of each row
  int64_t prompt_len = 0;  // P
  MachineConfig machine;
};

// Writes logits f32 [B,T,V], loss f32 [1] (next-token cross-entropy, mean over all B(T-1) positions), with
// grads grad.NAME f32 for every parameter, with greedy > 0 greedy int32 [B, P+N].
Status run_debug_logits(const DebugLogitsConfig& config);

}  // namespace lockstep::loop
