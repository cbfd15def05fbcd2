// SPDX-License-Identifier: Apache-2.0
#include "loop/start.h"

#include <utility>

#include "checkpoint/hf_folder.h"
#include "core/file.h"
#include "core/log.h"
#include "loop/machine.h"

namespace lockstep::loop {

Result<Start> read_start(const std::string& hf_checkpoint, model::Profile profile,
                         const MachineConfig& machine) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto context, make_context(machine));
  if (!is_directory(hf_checkpoint))
    return invalid(
        "--hf-checkpoint {}: is not a folder; give one with config.json, safetensors and tokenizer",
        hf_checkpoint);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, checkpoint::read_config_json(hf_checkpoint));
  LOCKSTEP_ASSIGN_OR_RETURN(
      model::ModelConfig shape,
      model::parse_model_config(json, join_path(hf_checkpoint, checkpoint::kConfigFile)));
  LOCKSTEP_ASSIGN_OR_RETURN(TextModel text, load_text_model(hf_checkpoint, shape.eos_ids, shape.vocab));
  LOCKSTEP_ASSIGN_OR_RETURN(model::ChosenDevice device, model::choose_device(profile, shape, machine.device));
  return Start{std::move(context), std::move(shape), std::move(text), std::move(device)};
}

Result<Start> start_run(const std::string& hf_checkpoint, model::Profile profile,
                        const MachineConfig& machine) {
  LOCKSTEP_ASSIGN_OR_RETURN(Start start, read_start(hf_checkpoint, profile, machine));
  if (!start.device.reason.empty()) log_info("{}", start.device.reason);
  return start;
}

}  // namespace lockstep::loop
