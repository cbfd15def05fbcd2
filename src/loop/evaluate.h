// SPDX-License-Identifier: Apache-2.0
// Accuracy of a network on prompt files, inside a run and as a command.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "loop/config.h"
#include "loop/progress.h"
#include "loop/sampling_run.h"

namespace lockstep::loop {

struct EvalResult {
  std::string name;
  SampledBatch batch;
  SampleSummary summary;
  double seconds = 0;
};

class Evaluator {
 public:
  // Reads every data file of config.data. prompt: keys, template and suffix (its path is not used).
  static Result<Evaluator> load(const EvalConfig& config, const PromptConfig& prompt,
                                const std::string& default_suffix, const TextModel& text);

  bool empty() const { return sources_.empty(); }
  // updates: how many updates the weights have had; part of the random draws.
  Result<std::vector<EvalResult>> run(const SampleContext& sample, uint64_t seed, int64_t updates,
                                      ProgressLine* progress) const;
  // JSON array of the data files' identities.
  std::string identity_json() const;
  // Tokens of the longest prompt.
  int64_t longest_prompt() const { return longest_prompt_; }
  // Samples of one run(), over all data files, and of the largest of them.
  int64_t samples() const { return prompts_ * config_.samples_per_prompt; }
  int64_t most_samples() const { return most_prompts_ * config_.samples_per_prompt; }
  // The needs of run(); refers to this evaluator.
  SamplingNeeds needs() const {
    return {"the evaluation data", longest_prompt_, "--eval-max-response-len", config_.sampling};
  }

 private:
  EvalConfig config_;
  std::vector<std::pair<std::string, PromptSource>> sources_;
  int64_t longest_prompt_ = 0;
  int64_t prompts_ = 0;
  int64_t most_prompts_ = 0;
};

// Of --out; before anything is read.
Status check_eval_output(const EvalCommandConfig& config);
// lockstep eval: prints one JSON line a data file to stdout.
Status run_eval(const EvalCommandConfig& config);

}  // namespace lockstep::loop
