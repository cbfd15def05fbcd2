// SPDX-License-Identifier: Apache-2.0
// Continuous batching over a paged cache. What is returned for a request is a pure function of (weights,
// prompt, seed, purpose, ordinal, sample index, sampling settings); how it is scheduled changes no bit.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "device/cpu/context.h"
#include "model/model.h"
#include "numerics/philox.h"
#include "ops/vocabulary/vocabulary.h"
#include "rollout/config.h"
#include "rollout/kv_pool.h"

namespace lockstep::rollout {

struct Request {
  std::vector<int32_t> prompt;  // at least one id
  uint64_t ordinal = 0;         // n of the random draws (docs/numerics.md, Randomness)
  uint32_t sample_index = 0;    // within its prompt
};

enum class FinishReason { kStop, kLength };

struct Completion {
  std::vector<int32_t> tokens;   // with the stop token
  std::vector<float> log_probs;  // of each token at the sampling temperature, before top-k and top-p
  FinishReason finish = FinishReason::kLength;
};

struct GenerationSettings {
  SamplingConfig sampling;
  uint64_t seed = 0;
  numerics::Purpose purpose = numerics::Purpose::kRollout;
  std::vector<int32_t> end_ids;                     // tokens that end a sample
  int64_t sampleable = 0;                           // ids at or above it are never drawn
  std::function<std::string(int32_t)> token_bytes;  // needed for stop strings only
};

struct GenerationStats {
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens taken from a shared prefix
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t peak_kv_pages = 0;
};

struct Progress {
  int64_t finished = 0;
  int64_t total = 0;
  int64_t generated_tokens = 0;
};

// Whether the KV cache that `config` asks for holds one request of `tokens` (prompt and response): kInvalid,
// with the arithmetic, if not.
Status check_cache(const EngineConfig& config, int64_t tokens);

class Engine {
 public:
  Engine(const model::Model& model, const EngineConfig& config);

  // One completion a request, in the order of the requests. Requests with the same prompt and ordinal share a
  // prefix. Errors: kInvalid (a prompt is too long or holds an id outside the vocabulary; the cache is too
  // small for one request: the arithmetic is in the message), kStopped (a logit is NaN or infinite).
  Result<std::vector<Completion>> generate(const cpu::Context& context, const std::vector<Request>& requests,
                                           const GenerationSettings& settings,
                                           const std::function<void(const Progress&)>& progress = {});
  const GenerationStats& stats() const { return stats_; }

 private:
  struct Sequence;
  struct Prefix;
  struct Run;

  const model::Model& model_;
  EngineConfig config_;
  std::unique_ptr<model::Decoder> decoder_;
  KvPool pool_;
  GenerationStats stats_;
};

}  // namespace lockstep::rollout
