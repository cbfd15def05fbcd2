// SPDX-License-Identifier: Apache-2.0
// Everything a command was asked for, filled by cli/ from options and TOML. Names of options are in
// docs/options.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "rollout/config.h"
#include "trainer/config.h"

namespace lockstep::loop {

// Where prompts come from and how they become token ids: identity.
struct PromptConfig {
  std::string path;       // file or file@[a:b]
  std::string input_key;  // "": found by rule (docs/data.md)
  std::string label_key;
  bool apply_chat_template = false;
  std::optional<std::string> prompt_suffix;  // none: the grader's default for GSM8K columns
  int64_t max_prompt_len = 0;        // --rollout-max-prompt-len: longer prompts are an error; 0: no limit
  bool safe_control_tokens = false;  // --control-tokens safe|compatible
};

// Free options: change no bit.
struct MachineConfig {
  int threads = 0;  // 0: all cores
  std::string isa = "auto";
  model::DeviceChoice device;
  int64_t max_tokens_per_gpu = 2048;   // tokens of a micro-batch (at least one sample)
  bool recompute_activations = false;  // --recompute-activations: less memory, a third more work
  rollout::EngineConfig engine;
};

struct EvalConfig {
  int64_t interval = 0;  // --eval-interval: every so many steps, and at 0; 0: never
  std::vector<std::pair<std::string, std::string>> data;  // --eval-prompt-data NAME PATH ...
  int64_t samples_per_prompt = 1;                         // --n-samples-per-eval-prompt
  bool skip_before_train = false;                         // --skip-eval-before-train
  rollout::SamplingConfig
      sampling;  // --eval-max-response-len, --eval-temperature, --eval-top-p, --eval-top-k
};

struct TrainConfig {
  std::string hf_checkpoint;
  model::Profile profile = model::Profile::kFp32;
  std::string ref_load;  // reference model of the KL term; "": hf_checkpoint
  PromptConfig prompt;
  bool rollout_shuffle = false;
  std::string data_order = "lockstep";  // lockstep | miles
  std::string rm_type;
  int64_t num_rollout = 0;          // steps
  int64_t rollout_batch_size = 32;  // prompts a step
  int64_t n_samples_per_prompt = 8;
  int64_t global_batch_size = 0;  // samples an update; 0: all of a step
  uint64_t seed = 42;             // --rollout-seed
  rollout::SamplingConfig sampling;
  EvalConfig eval;
  trainer::UpdateConfig update;
  MachineConfig machine;
  std::string run_dir;        // --run-dir
  std::string save;           // --save: checkpoints; default run_dir
  std::string load;           // --load: where to go on from; default run_dir
  int64_t save_interval = 0;  // 0: only the last step
  int64_t save_retain = -1;   // newest checkpoints kept; -1: all
};

struct SftConfig {
  std::string hf_checkpoint;
  model::Profile profile = model::Profile::kFp32;
  PromptConfig prompt;  // rows with a conversation that ends in an assistant turn, or prompt + label
  bool shuffle = true;
  std::string data_order = "lockstep";
  int64_t num_steps = 0;    // --num-rollout
  int64_t batch_size = 16;  // --global-batch-size
  uint64_t seed = 42;
  trainer::UpdateConfig update;
  MachineConfig machine;
  std::string run_dir, save, load;
  int64_t save_interval = 0;
  int64_t save_retain = -1;
};

struct EvalCommandConfig {
  std::string hf_checkpoint;
  model::Profile profile = model::Profile::kFp32;
  PromptConfig prompt;  // keys and template; paths are in eval.data
  std::string rm_type;
  EvalConfig eval;
  uint64_t seed = 42;
  MachineConfig machine;
  std::string out;  // JSONL of prompts, responses and rewards; "": none
};

struct GenerateConfig {
  std::string hf_checkpoint;
  model::Profile profile = model::Profile::kFp32;
  std::vector<std::string> prompts;  // --prompt TEXT, each one user message (or raw text without template)
  PromptConfig prompt;               // or --prompt-data
  int64_t n_samples_per_prompt = 1;
  uint64_t seed = 42;
  rollout::SamplingConfig sampling;
  MachineConfig machine;
  std::string out;  // JSONL; "": stdout
};

struct InitConfig {
  std::string model_config;  // a config.json
  std::string tokenizer;     // folder whose tokenizer files are copied; may be ""
  uint64_t seed = 42;
  std::string out;  // --save
};

}  // namespace lockstep::loop
