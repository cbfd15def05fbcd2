// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: a Hugging Face folder that loads in transformers as it is, and what training needs
// besides.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"
#include "core/status.h"
#include "model/model.h"
#include "trainer/trainer.h"

namespace lockstep::loop {

struct CheckpointContents {
  const model::Model* model = nullptr;
  const trainer::OptimizerState* optimizer = nullptr;  // null: a model only
  std::string config_json;                             // the model's config.json as it came
  std::string side_folder;  // tokenizer and other side files come from here; "": none
  std::string state_json;   // with optimizer
};

// Writes the files of a begun checkpoint and commits it. Errors (kStopped): a failed write; what was there is
// intact.
Status write_checkpoint(checkpoint::CheckpointWriter writer, const CheckpointContents& contents);
// The config.json of such a checkpoint: that of base_folder with the stored type.
Result<std::string> saved_config_json(const std::string& base_folder, const model::Model& model);
// Bytes such a checkpoint takes on disk.
Result<int64_t> checkpoint_bytes(const model::Model& model, bool optimizer);

// Masters, moments and state.json of a checkpoint of this model. The model still wants prepare().
Status read_checkpoint(const std::string& folder, model::Model* model, trainer::OptimizerState* optimizer,
                       std::string* state_json);

}  // namespace lockstep::loop
