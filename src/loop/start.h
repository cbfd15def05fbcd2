// SPDX-License-Identifier: Apache-2.0
// What a command knows before it reads weights: the checkpoint's shape and tokenizer, and where it computes.
#pragma once

#include <memory>
#include <string>

#include "core/status.h"
#include "device/cpu/context.h"
#include "loop/config.h"
#include "loop/prompts.h"
#include "model/gpu.h"

namespace lockstep::loop {

struct Start {
  std::unique_ptr<cpu::Context> context;
  model::ModelConfig shape;
  TextModel text;
  model::ChosenDevice device;
};
// Reads config.json and the tokenizer.
Result<Start> read_start(const std::string& hf_checkpoint, model::Profile profile,
                         const MachineConfig& machine);
// The same for a run: says on stderr what --device auto chose.
Result<Start> start_run(const std::string& hf_checkpoint, model::Profile profile,
                        const MachineConfig& machine);

}  // namespace lockstep::loop
