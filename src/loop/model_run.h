// SPDX-License-Identifier: Apache-2.0
// What train and sft share: a model in training with its run folder.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/status.h"
#include "loop/config.h"
#include "loop/progress.h"
#include "loop/run_folder.h"
#include "loop/start.h"
#include "loop/update_record.h"
#include "model/model.h"
#include "trainer/trainer.h"

namespace lockstep::loop {

struct ModelRun {
  Start start;
  std::unique_ptr<model::Model> model;
  std::string weights_digest;  // of the masters the run starts from: identity
  std::optional<RunFolder> folder;
  std::unique_ptr<trainer::Trainer> trainer;
  trainer::OptimizerState state;
  ProgressLine progress;

  // The weights, after `start`. Nothing is written.
  Status load(const std::string& hf_checkpoint, model::Profile profile);
  // The ledger's first line. config, data: JSON objects.
  std::string header(const char* kind, const std::string& config, const std::string& data) const;
  // Opens the run folder, goes on from its checkpoint if there is one, makes the trainer.
  Status open(const RunFolderOptions& options, const std::string& header, const std::string& hf_checkpoint,
              const MachineConfig& machine, const trainer::UpdateConfig& update);
  UpdateTarget target() { return {start.context.get(), model.get(), &state, trainer.get(), &*folder}; }
};

}  // namespace lockstep::loop
