// SPDX-License-Identifier: Apache-2.0
// What a run will take, counted before it starts.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "loop/config.h"
#include "loop/evaluate.h"
#include "loop/start.h"

namespace lockstep::loop {

struct RunMemory {
  std::vector<model::MemoryPart> host;
  std::vector<model::MemoryPart> gpu;  // none: the run is on the CPU
  std::string remedy;                  // what makes it less
};

// Lengths of demonstrations, in tokens.
struct DemonstrationLengths {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t longest = 0;
  int64_t longest_response = 0;
};

RunMemory train_memory(const TrainConfig& config, const Start& start, const PromptSource& prompts,
                       const Evaluator& evaluator);
RunMemory sft_memory(const SftConfig& config, const Start& start, const DemonstrationLengths& lengths);
RunMemory eval_memory(const EvalCommandConfig& config, const Start& start, const Evaluator& evaluator);
// samples: of all prompts; longest: prompt and response.
RunMemory generate_memory(const GenerateConfig& config, const Start& start, int64_t samples, int64_t longest);

// kInvalid, with the arithmetic and what to change, when the run does not fit this machine's memory, or is on
// a GPU and does not fit what is free there.
Status check_memory(const Start& start, const RunMemory& memory);
// The first of them, for a machine of so many bytes with swap; 0: not known.
Status check_host_memory(int64_t machine, const RunMemory& memory);

// One line a part and the sum, for --dry-run. Each reads config.json, the tokenizer and, for the lengths, the
// data files, and refuses (kInvalid) what the run itself would refuse of them.
Result<std::string> train_memory_text(const TrainConfig& config);
Result<std::string> sft_memory_text(const SftConfig& config);
Result<std::string> eval_memory_text(const EvalCommandConfig& config);
Result<std::string> generate_memory_text(const GenerateConfig& config);

}  // namespace lockstep::loop
