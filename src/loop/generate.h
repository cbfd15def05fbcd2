// SPDX-License-Identifier: Apache-2.0
// lockstep generate: samples from a checkpoint.
#pragma once

#include "core/status.h"
#include "loop/config.h"
#include "loop/sampling_run.h"

namespace lockstep::loop {

// The prompts given as text, or the rows of a file; at least one.
Result<std::vector<SampledPrompt>> generation_prompts(const GenerateConfig& config, const TextModel& text);
// Their needs; refers to `config`.
SamplingNeeds generation_needs(const GenerateConfig& config, const std::vector<SampledPrompt>& prompts);
// Of --out; before anything is read.
Status check_generate_output(const GenerateConfig& config);

// One JSON line a sample, to config.out or stdout.
Status run_generate(const GenerateConfig& config);

}  // namespace lockstep::loop
