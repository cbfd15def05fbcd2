// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::rollout {

// What a sample is: part of the run's identity.
struct SamplingConfig {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int64_t top_k = -1;                   // -1: off
  int64_t max_new_tokens = 1024;        // the stop token counts
  std::vector<std::string> stop;        // stop strings: generation ends with the token that completes one
  std::vector<int32_t> stop_token_ids;  // besides the model's own end tokens
};

// How samples are scheduled: changes no bit.
struct EngineConfig {
  int64_t max_running_requests = 64;          // --max-running-requests: sequences decoded together
  std::optional<uint64_t> admission_shuffle;  // --admission shuffle:SEED; none: fifo
  bool prefix_cache = true;                   // --prefix-cache: one prefill for the samples of a prompt
  int64_t chunked_prefill_size = 512;         // --chunked-prefill-size: prompt tokens a step at most
  int64_t decode_steps = 0;      // --decode-steps: without the scheduler; 0: what the decoder prefers
  int64_t max_total_tokens = 0;  // --max-total-tokens: KV pool; 0: enough for max_running_requests
};

}  // namespace lockstep::rollout
