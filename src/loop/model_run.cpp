// SPDX-License-Identifier: Apache-2.0
#include "loop/model_run.h"

#include <utility>

#include "core/log.h"
#include "loop/environment.h"
#include "model/digests.h"
#include "model/load.h"

namespace lockstep::loop {

Status ModelRun::load(const std::string& hf_checkpoint, model::Profile profile) {
  LOCKSTEP_ASSIGN_OR_RETURN(model, model::load_model(hf_checkpoint, profile, start.device.choice));
  weights_digest = model::combine_digests(model::digest_parameters(*start.context, model->table(),
                                                                   std::as_const(*model).masters()))
                       .hex();
  return ok_status();
}

std::string ModelRun::header(const char* kind, const std::string& config, const std::string& data) const {
  ledger::JsonObject checkpoint;
  checkpoint.add("weights", weights_digest).add("tokenizer_sha256", start.text.files_sha256);
  return ledger::JsonObject()
      .add("lockstep_ledger", ledger::kLedgerVersion)
      .add("kind", kind)
      .add("numerics_version", numerics::kNumericsVersion)
      .add("profile", model::profile_name(model->profile()))
      .add_json("config", config)
      .add_json("data", data)
      .add_json("checkpoint", checkpoint.text())
      .text();
}

Status ModelRun::open(const RunFolderOptions& options, const std::string& header,
                      const std::string& hf_checkpoint, const MachineConfig& machine,
                      const trainer::UpdateConfig& update) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, checkpoint_bytes(*model, true));
  LOCKSTEP_RETURN_IF_ERROR(
      checkpoint::check_space(options.save.empty() ? options.run_dir : options.save, bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(folder, RunFolder::open(options, header));
  const int64_t moments = model->table().arena_size();
  if (start.device.gpu && !folder->resumed()) {  // pages that only a checkpoint touches
    state.m = Buffer<float>(moments);
    state.v = Buffer<float>(moments);
  } else {
    state.m = Buffer<float>::zeros(moments);
    state.v = Buffer<float>::zeros(moments);
  }
  if (folder->resumed())
    LOCKSTEP_RETURN_IF_ERROR(folder->load(*start.context, hf_checkpoint, model.get(), &state));
  LOCKSTEP_RETURN_IF_ERROR(folder->start());
  if (folder->resumed()) {
    log_info("going on from {} at step {}", folder->checkpoint_folder(), folder->first_step());
  }
  LOCKSTEP_RETURN_IF_ERROR(folder->add_environment(
      environment_json(machine, start, folder->checkpoint_folder(), folder->last_sha256())));
  model->prepare(*start.context, model->config().max_positions);
  trainer = std::make_unique<trainer::Trainer>(model.get(), &state, update, machine.recompute_activations);
  return ok_status();
}

}  // namespace lockstep::loop
