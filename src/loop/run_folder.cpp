// SPDX-License-Identifier: Apache-2.0
#include "loop/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"

namespace lockstep::loop {
namespace {

constexpr const char* kEventsFolder = "tensorboard";

std::string ledger_path(const std::string& run_dir) {
  return join_path(run_dir, ledger::kLedgerFile);
}

// A header that was never finished (killed in the first write) counts as no ledger.
bool has_ledger(const std::string& run_dir) {
  const Result<std::string> text = read_file(ledger_path(run_dir));
  return text.ok() && text.value().find('\n') != std::string::npos;
}

Status keep_lines(const std::string& path, int64_t lines) {
  if (!path_exists(path)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const std::string_view kept = first_lines(text, lines);
  return kept.size() == text.size() ? ok_status() : write_file_atomic(path, kept);
}

bool is_temporary(const std::string& name) {
  const std::string suffix = ".jsonl.tmp";
  return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// What a kill in the middle of write_file_atomic left.
Status remove_temporaries(const std::string& folder) {
  if (!is_directory(folder)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(folder));
  for (const std::string& name : names) {
    if (is_temporary(name)) LOCKSTEP_RETURN_IF_ERROR(remove_all(join_path(folder, name)));
  }
  return ok_status();
}

Status no_checkpoint(const std::string& load) {
  std::string place = load;
  while (place.size() > 1 && place.back() == '/') place.pop_back();
  if (checkpoint::checkpoint_iteration(base_name(place))) {
    return invalid("--load {}: is one checkpoint; name the run folder that holds it: --load {}", load,
                   parent_path(place));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> all, checkpoint::list_checkpoints(load));
  return invalid(
      "--load {}: holds no {}checkpoint (iter_NNNNNNN); name the run folder to go on from, or leave --load "
      "out "
      "to start from --hf-checkpoint",
      load, all.empty() ? "" : "complete ");
}

}  // namespace

std::string RunFolder::step_name(const std::string& prefix, int64_t step) {
  return sample_file_name(prefix, step);
}

Status RunFolder::check_existing(const std::string& header) {
  const std::string& dir = options_.run_dir;
  if (!path_exists(dir)) return ok_status();
  if (!is_directory(dir)) return invalid("--run-dir {}: is not a folder", dir);
  if (has_ledger(dir)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const ledger::Ledger old, ledger::read_ledger(ledger_path(dir)));
    const std::string difference = ledger::header_difference(old.header, header);
    if (!difference.empty()) {
      return invalid(
          "--run-dir {}: holds a run of another identity ({}); give another --run-dir or the same settings",
          dir, difference);
    }
    had_records_ = static_cast<int64_t>(old.records.size());
    if (had_records_ > 0) had_step_ = old.records.back().step;  // steps never go down
    return ok_status();
  }
  // Not ours unless it is empty or holds only what a start leaves behind.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(dir));
  for (const std::string& name : names) {
    if (name != ledger::kLedgerFile && name != kMetricsFile && name != kEnvironmentFile &&
        name != kSamplesFolder && name != kEventsFolder && !is_temporary(name)) {
      return invalid("--run-dir {}: is not empty and holds no {}; give a new folder", dir,
                     ledger::kLedgerFile);
    }
  }
  return ok_status();
}

Status RunFolder::find_checkpoint() {
  std::vector<std::string> places = {options_.load};
  if (options_.load.empty()) {
    places = {options_.save};
    if (options_.save != options_.run_dir && !same_folder(options_.save, options_.run_dir))
      places.push_back(options_.run_dir);
  }
  for (const std::string& place : places) {
    if (!options_.load.empty() && !is_directory(place)) return invalid("--load {}: no such folder", place);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> step,
                              checkpoint::newest_complete_checkpoint(place));
    if (!step && !options_.load.empty()) return no_checkpoint(place);
    if (!step || (checkpoint_step_ && *step <= *checkpoint_step_)) continue;
    const std::string folder = checkpoint::checkpoint_path(place, *step);
    LOCKSTEP_ASSIGN_OR_RETURN(const SavedState state, read_state(folder));
    if (state.identity != identity_sha256_) {
      return invalid(
          "{}: is a checkpoint of a run of another identity; give another folder or the same settings",
          folder);
    }
    checkpoint_step_ = *step;
    checkpoint_folder_ = folder;
    state_ = state;
  }
  return ok_status();
}

// A run that has a ledger but no checkpoint starts over: right when it was killed before its first one. When
// its ledger goes on behind a step whose checkpoint was due, that one is somewhere else, or was damaged.
Status RunFolder::check_restart() const {
  const int64_t interval = options_.save_interval;
  if (interval > 0 && had_step_ >= interval) {
    return invalid(
        "--run-dir {}: its ledger goes on to step {}, but {} holds no complete checkpoint, and one was due "
        "after step {}; name the folder of its checkpoints (--save or --load), or start over in a new "
        "--run-dir",
        options_.run_dir, had_step_ + 1, options_.save, had_step_ / interval * interval);
  }
  if (had_records_ > 0)
    log_info("{}: no checkpoint yet; its {} records are made again", options_.run_dir, had_records_);
  return ok_status();
}

// The ledger of the run folder, or, when it has none, of the folder that --load names.
Status RunFolder::find_history() {
  if (!resumed()) return had_ledger_ ? check_restart() : ok_status();
  const std::string from = had_ledger_ ? options_.run_dir : parent_path(checkpoint_folder_);
  LOCKSTEP_ASSIGN_OR_RETURN(history_, read_history(from, checkpoint_folder_, state_));
  metrics_lines_ = state_.metrics_lines;
  return ok_status();
}

// --load names another run's folder: its ledger, metrics and samples up to the checkpoint become this run's.
// The ledger comes last: a folder that has one has the rest, whenever the program was killed.
Status RunFolder::adopt_history() {
  const std::string to = join_path(options_.run_dir, kSamplesFolder);
  LOCKSTEP_RETURN_IF_ERROR(remove_all(to));  // of a start that was killed here
  LOCKSTEP_RETURN_IF_ERROR(make_directories(to));
  const std::string from = join_path(history_->run_dir, kSamplesFolder);
  std::vector<std::string> samples;
  if (is_directory(from)) {
    LOCKSTEP_ASSIGN_OR_RETURN(samples, list_directory(from));
  }
  for (const std::string& name : samples) {
    if (is_temporary(name) || sample_step(name) > *checkpoint_step_) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(join_path(from, name)));
    LOCKSTEP_RETURN_IF_ERROR(write_samples(name, text));
  }
  const std::string metrics = join_path(history_->run_dir, kMetricsFile);
  if (path_exists(metrics)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(metrics));
    LOCKSTEP_RETURN_IF_ERROR(write_file_atomic(join_path(options_.run_dir, kMetricsFile),
                                               first_lines(text, state_.metrics_lines)));
  }
  return write_file_atomic(ledger_path(options_.run_dir), history_->ledger_text);
}

Status RunFolder::remove_later_samples() {
  const std::string folder = join_path(options_.run_dir, kSamplesFolder);
  if (!is_directory(folder)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(folder));
  for (const std::string& name : names) {
    if (!checkpoint_step_ || sample_step(name) > *checkpoint_step_) {
      LOCKSTEP_RETURN_IF_ERROR(remove_all(join_path(folder, name)));
    }
  }
  return ok_status();
}

Status RunFolder::cut_back() {
  LOCKSTEP_RETURN_IF_ERROR(remove_later_samples());
  LOCKSTEP_RETURN_IF_ERROR(keep_lines(join_path(options_.run_dir, kMetricsFile), metrics_lines_));
  return had_ledger_ ? ledger::truncate_to_records(ledger_path(options_.run_dir), state_.ledger_records)
                     : ok_status();
}

Status RunFolder::start_ledger() {
  const std::string path = ledger_path(options_.run_dir);
  if (!has_ledger(options_.run_dir)) {
    LOCKSTEP_RETURN_IF_ERROR(remove_all(path));
    LOCKSTEP_ASSIGN_OR_RETURN(ledger_, ledger::LedgerWriter::create(path, header_));
    return ledger_->commit();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(ledger_, ledger::LedgerWriter::open_for_append(path));
  LOCKSTEP_CHECK(ledger_->records() == state_.ledger_records);
  return ok_status();
}

// Those of the two folders that are there and not locked yet.
Status RunFolder::lock_folders() {
  if (!run_dir_lock_.held() && is_directory(options_.run_dir)) {
    LOCKSTEP_ASSIGN_OR_RETURN(run_dir_lock_, FolderLock::take("--run-dir", options_.run_dir));
  }
  if (!save_lock_.held() && is_directory(options_.save) && !same_folder(options_.save, options_.run_dir)) {
    LOCKSTEP_ASSIGN_OR_RETURN(save_lock_, FolderLock::take("--save", options_.save));
  }
  return ok_status();
}

Result<RunFolder> RunFolder::open(const RunFolderOptions& options, const std::string& header) {
  RunFolder folder;
  folder.options_ = options;
  if (options.run_dir.empty()) return invalid("--run-dir is missing; name the folder the run is written to");
  if (folder.options_.save.empty()) folder.options_.save = options.run_dir;
  folder.header_ = header;
  folder.identity_sha256_ = sha256_hex(header);
  LOCKSTEP_RETURN_IF_ERROR(folder.lock_folders());
  LOCKSTEP_RETURN_IF_ERROR(folder.check_existing(header));
  LOCKSTEP_RETURN_IF_ERROR(check_output_folder(options.run_dir).with_context("--run-dir"));
  LOCKSTEP_RETURN_IF_ERROR(check_output_folder(folder.options_.save).with_context("--save"));
  folder.had_ledger_ = has_ledger(options.run_dir);
  LOCKSTEP_RETURN_IF_ERROR(folder.find_checkpoint());
  LOCKSTEP_RETURN_IF_ERROR(folder.find_history());
  return folder;
}

Status RunFolder::load(const cpu::Context& context, const std::string& base_folder, model::Model* model,
                       trainer::OptimizerState* optimizer) {
  LOCKSTEP_CHECK(resumed());
  std::string state;
  LOCKSTEP_RETURN_IF_ERROR(read_checkpoint(checkpoint_folder_, model, optimizer, &state));
  LOCKSTEP_RETURN_IF_ERROR(check_loaded(context, *history_, checkpoint_folder_, state_, *model, *optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string config, checkpoint::read_config_json(checkpoint_folder_));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string want, saved_config_json(base_folder, *model));
  loaded_ = true;
  if (config == want) return ok_status();
  return invalid("{}/{}: is not what {}/{} gives; restore the one of the two that was changed",
                 checkpoint_folder_, checkpoint::kConfigFile, base_folder, checkpoint::kConfigFile);
}

Status RunFolder::start() {
  LOCKSTEP_CHECK(loaded_ || !resumed());
  const std::string& dir = options_.run_dir;
  LOCKSTEP_RETURN_IF_ERROR(make_directories(dir));
  LOCKSTEP_RETURN_IF_ERROR(make_directories(options_.save));
  LOCKSTEP_RETURN_IF_ERROR(lock_folders());
  if (has_ledger(dir) != had_ledger_)  // made between open() and the lock
    return invalid("--run-dir {}: another start has just written here; start again to go on from it", dir);
  LOCKSTEP_RETURN_IF_ERROR(make_directories(join_path(dir, kSamplesFolder)));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::remove_stale_temporaries(options_.save));
  LOCKSTEP_RETURN_IF_ERROR(remove_temporaries(dir));
  LOCKSTEP_RETURN_IF_ERROR(remove_temporaries(join_path(dir, kSamplesFolder)));
  LOCKSTEP_RETURN_IF_ERROR(resumed() && !had_ledger_ ? adopt_history() : cut_back());
  LOCKSTEP_RETURN_IF_ERROR(start_ledger());
  // A kill between a save and its retention left one too many.
  if (resumed() && options_.retain > 0 && same_folder(parent_path(checkpoint_folder_), options_.save)) {
    LOCKSTEP_RETURN_IF_ERROR(
        checkpoint::retain_checkpoints(options_.save, options_.retain, *checkpoint_step_));
  }
  history_.reset();
  LOCKSTEP_ASSIGN_OR_RETURN(metrics_, FileWriter::open(join_path(dir, kMetricsFile), true));
  LOCKSTEP_ASSIGN_OR_RETURN(events_, EventFile::create(join_path(dir, kEventsFolder), first_step()));
  return ok_status();
}

Status RunFolder::add_metrics(const std::string& json_line) {
  ++metrics_lines_;
  LOCKSTEP_RETURN_IF_ERROR(metrics_->write(json_line + "\n"));
  const auto json = nlohmann::ordered_json::parse(json_line, nullptr, false);
  std::vector<std::pair<std::string, float>> scalars;
  for (const auto& [name, value] : json.items()) {
    if (name.find('/') != std::string::npos && value.is_number())
      scalars.emplace_back(name, value.get<float>());
  }
  return events_->add(json["step"].get<int64_t>(), scalars);
}

Status RunFolder::write_samples(const std::string& name, const std::string& text) {
  return write_file_atomic(join_path(join_path(options_.run_dir, kSamplesFolder), name), text);
}

Status RunFolder::add_environment(const std::string& json_line) {
  LOCKSTEP_ASSIGN_OR_RETURN(FileWriter file,
                            FileWriter::open(join_path(options_.run_dir, kEnvironmentFile), true));
  LOCKSTEP_RETURN_IF_ERROR(file.write(json_line + "\n"));
  return file.close();
}

bool RunFolder::save_due(int64_t step) const {
  if (step + 1 == options_.steps) return true;
  return options_.save_interval > 0 && (step + 1) % options_.save_interval == 0;
}

Status RunFolder::save(int64_t step, const model::Model& model, const trainer::OptimizerState& optimizer,
                       const std::string& base_folder) {
  LOCKSTEP_RETURN_IF_ERROR(metrics_->sync());
  ledger::JsonObject state;
  state.add("lockstep_state", 1)
      .add("step", step)
      .add("optimizer_step", optimizer.step)
      .add("identity_sha256", identity_sha256_)
      .add("ledger_records", ledger_->records())
      .add("ledger_sha256", ledger_->last_sha256())
      .add("metrics_lines", metrics_lines_);
  CheckpointContents contents;
  contents.model = &model;
  contents.optimizer = &optimizer;
  LOCKSTEP_ASSIGN_OR_RETURN(contents.config_json, checkpoint::read_config_json(base_folder));
  contents.side_folder = base_folder;
  contents.state_json = state.text() + "\n";
  LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::CheckpointWriter writer,
                            checkpoint::CheckpointWriter::begin(options_.save, step));
  LOCKSTEP_RETURN_IF_ERROR(write_checkpoint(std::move(writer), contents));
  return options_.retain > 0 ? checkpoint::retain_checkpoints(options_.save, options_.retain, step)
                             : ok_status();
}

}  // namespace lockstep::loop
