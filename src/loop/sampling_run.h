// SPDX-License-Identifier: Apache-2.0
// Samples of prompts with their rewards: what rollout and evaluation share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loop/prompts.h"
#include "rollout/engine.h"
#include "tasks/grader.h"

namespace lockstep::loop {

struct SampledPrompt {
  int64_t row = 0;       // of the data file
  uint64_t ordinal = 0;  // n of the random draws
  Prompt prompt;
};

struct SampledBatch {
  std::vector<SampledPrompt> prompts;
  int64_t samples_per_prompt = 1;
  std::vector<rollout::Completion> completions;  // prompt-major
  std::vector<std::string> responses;            // text without the final end token
  std::vector<double> rewards;
  bool graded = false;  // else rewards mean nothing

  const SampledPrompt& prompt_of(size_t completion) const {
    return prompts[completion / static_cast<size_t>(samples_per_prompt)];
  }
};

struct SampleContext {
  const cpu::Context* context = nullptr;
  const TextModel* text = nullptr;
  rollout::Engine* engine = nullptr;
  const tasks::Grader* grader = nullptr;  // null: rewards stay 0
  int64_t vocab = 0;
};

// What sampling asks of a model and a machine, checked before anything is sampled or written.
struct SamplingNeeds {
  std::string data;                // for messages: where the prompts come from
  int64_t longest_prompt = 0;      // tokens
  const char* length_option = "";  // the option that says sampling.max_new_tokens
  const rollout::SamplingConfig& sampling;
};
// kInvalid: prompt and response exceed the model's positions or the KV cache, or a stop token is none of the
// model's.
Status check_sampling_needs(const SamplingNeeds& needs, const model::ModelConfig& model,
                            const rollout::EngineConfig& engine);

// Whether `out` ("": none) can be written: a new file, or one to replace, in a folder that is there, and none
// of `inputs` (data paths, with or without a slice), no config, no file of a checkpoint or a run. kInvalid if
// not. Nothing is written.
Status check_output_file(const std::string& out, const std::vector<std::string>& inputs);

rollout::GenerationSettings generation_settings(const SampleContext& sample,
                                                const rollout::SamplingConfig& sampling, uint64_t seed,
                                                numerics::Purpose purpose);

// Fills completions, responses and rewards of batch->prompts. Errors: as Engine::generate; a reward that is
// not finite.
Status sample_batch(const SampleContext& sample, const rollout::GenerationSettings& settings,
                    const std::function<void(const rollout::Progress&)>& progress, SampledBatch* batch);

// One JSON line a sample: prompt row, ids, response, finish reason; reward and label where it was graded.
// Log-probs as the bits of binary32.
std::string samples_jsonl(const cpu::Context& context, const SampledBatch& batch);

struct SampleSummary {
  double reward_mean = 0, response_length_mean = 0, truncated = 0;
  double zero_spread_groups = 0;  // share of prompts whose rewards are all equal
  int64_t response_tokens = 0;
};
SampleSummary summarise(const SampledBatch& batch);

}  // namespace lockstep::loop
