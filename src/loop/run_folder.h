// SPDX-License-Identifier: Apache-2.0
// The folder of a run: ledger, metrics, samples, environment and checkpoints; start, resume and save
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "ledger/ledger.h"
#include "loop/event_file.h"
#include "loop/folder_lock.h"
#include "loop/model_io.h"
#include "loop/saved_state.h"

namespace lockstep::loop {

struct RunFolderOptions {
  std::string run_dir;
  std::string save;           // "": run_dir
  std::string load;           // "": the newest checkpoint of save and run_dir
  int64_t save_interval = 0;  // 0: only the last step
  int64_t retain = -1;
  int64_t steps = 0;  // of the whole run
};

class RunFolder {
 public:
  // Looks and writes nothing: locks the folders that are there, finds the newest complete checkpoint and
  // holds it against the ledger. kInvalid: the folder holds a run of another identity (names the first
  // differing field) or something else; another start has it; --load holds no checkpoint; the checkpoint does
  // not agree with ledger or metrics.
  static Result<RunFolder> open(const RunFolderOptions& options, const std::string& header);

  // The step after the checkpoint found, or 0.
  int64_t first_step() const { return checkpoint_step_ ? *checkpoint_step_ + 1 : 0; }
  bool resumed() const { return checkpoint_step_.has_value(); }
  const std::string& checkpoint_folder() const { return checkpoint_folder_; }
  // Reads the checkpoint found and checks its tensors by the ledger's digests, its config.json by that of
  // base_folder; call only when resumed(). kInvalid: they do not agree.
  Status load(const cpu::Context& context, const std::string& base_folder, model::Model* model,
              trainer::OptimizerState* optimizer);
  // Begins to write, after load() when resumed(): creates the folders, takes over the history of --load, cuts
  // ledger, metrics and samples back to the checkpoint. kStopped when something can not be written.
  Status start();

  void append(const ledger::LedgerRecord& record) { ledger_->append(record); }
  Status commit() { return ledger_->commit(); }
  // A JSON object with `step`: a line of metrics.jsonl, and its values named a/b as scalars in tensorboard/.
  Status add_metrics(const std::string& json_line);
  // samples/NAME, replaced whole.
  Status write_samples(const std::string& name, const std::string& text);
  Status add_environment(const std::string& json_line);

  bool save_due(int64_t step) const;
  // Call after commit(): the state holds the ledger's length and hash.
  Status save(int64_t step, const model::Model& model, const trainer::OptimizerState& optimizer,
              const std::string& base_folder);

  const std::string& run_dir() const { return options_.run_dir; }
  const std::string& save_dir() const { return options_.save; }
  const std::string& last_sha256() const { return ledger_->last_sha256(); }

  // iter_NNNNNNN-like number in a file name: "rollout_0000019.jsonl".
  static std::string step_name(const std::string& prefix, int64_t step);

 private:
  Status check_existing(const std::string& header);
  Status lock_folders();
  Status find_checkpoint();
  Status find_history();
  Status check_restart() const;
  Status adopt_history();
  Status cut_back();
  Status remove_later_samples();
  Status start_ledger();

  RunFolderOptions options_;
  std::string header_;
  std::string identity_sha256_;
  FolderLock run_dir_lock_, save_lock_;      // save_lock_: when it is another folder
  bool had_ledger_ = false;                  // run_dir, at open()
  int64_t had_records_ = 0, had_step_ = -1;  // of that ledger: records, step of the last
  bool loaded_ = false;
  std::optional<int64_t> checkpoint_step_;
  std::string checkpoint_folder_;
  SavedState state_;                // of the checkpoint
  std::optional<History> history_;  // until start()
  int64_t metrics_lines_ = 0;
  std::optional<ledger::LedgerWriter> ledger_;
  std::optional<FileWriter> metrics_;
  std::optional<EventFile> events_;
};

}  // namespace lockstep::loop
