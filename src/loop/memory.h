// SPDX-License-Identifier: Apache-2.0
// What a run will take, counted before it starts.
#pragma once

#include <string>

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

// One line a part and the sum, for --dry-run. Each reads config.json, the tokenizer and, for the lengths, the
// data files, and refuses (kInvalid) what the run itself would refuse of them.
Result<std::string> train_memory_text(const TrainConfig& config);
Result<std::string> sft_memory_text(const SftConfig& config);
Result<std::string> eval_memory_text(const EvalCommandConfig& config);
Result<std::string> generate_memory_text(const GenerateConfig& config);

}  // namespace lockstep::loop
