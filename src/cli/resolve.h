// SPDX-License-Identifier: Apache-2.0
// Values to the configurations of the commands, with the checks that concern more than one option. Nothing is
// read from disk here but what check_model_facts says.
#pragma once

#include <string>
#include <vector>

#include "cli/values.h"
#include "core/status.h"
#include "loop/config.h"
#include "loop/debug_logits.h"

namespace lockstep::cli {

// `warnings`: lines for stderr about what is taken but probably not meant.
Result<loop::TrainConfig> resolve_train(const Values& values, std::vector<std::string>* warnings);
Result<loop::SftConfig> resolve_sft(const Values& values);
Result<loop::EvalCommandConfig> resolve_eval(const Values& values);
Result<loop::GenerateConfig> resolve_generate(const Values& values);
loop::InitConfig resolve_init(const Values& values);
Result<loop::DebugLogitsConfig> resolve_debug_logits(const Values& values);

// What the command line states about the model (--num-layers 24) against config.json of --hf-checkpoint.
Status check_model_facts(const Values& values);

}  // namespace lockstep::cli
