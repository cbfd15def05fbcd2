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

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kEnvironmentFile = "environment.jsonl";
constexpr const char* kSamplesFolder = "samples";
constexpr const char* kEventsFolder = "tensorboard";

std::string ledger_path(const std::string& run_dir) {
  return join_path(run_dir, ledger::kLedgerFile);
}

// A header that was never finished (killed in the first write) counts as no ledger.
bool has_ledger(const std::string& run_dir) {
  const Result<std::string> text = read_file(ledger_path(run_dir));
  return text.ok() && text.value().find('\n') != std::string::npos;
}

// The step in "rollout_0000019.jsonl" or "eval_test_0000019.jsonl"; -1 for other names.
int64_t sample_step(const std::string& name) {
  constexpr size_t kDigits = 7;
  const std::string suffix = ".jsonl";
  if (name.size() < suffix.size() + kDigits + 1 ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
    return -1;
  size_t begin = name.size() - suffix.size();
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  const std::string digits = name.substr(begin, name.size() - suffix.size() - begin);
  if (digits.size() < kDigits || digits.size() > 18 || begin == 0 || name[begin - 1] != '_') return -1;
  return std::stoll(digits);
}

Status keep_lines(const std::string& path, int64_t lines) {
  if (!path_exists(path)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  size_t end = 0;
  for (int64_t i = 0; i < lines; ++i) {
    const size_t newline = text.find('\n', end);
    if (newline == std::string::npos) break;
    end = newline + 1;
  }
  return end == text.size() ? ok_status() : write_file_atomic(path, std::string_view(text).substr(0, end));
}

struct SavedState {
  int64_t ledger_records = 0;
  int64_t metrics_lines = 0;
  std::string identity;
  std::string ledger_sha256;
};

Result<SavedState> read_state(const std::string& folder) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(join_path(folder, checkpoint::kStateFile)));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  SavedState state;
  if (!json.is_object()) return invalid("{}/{}: is not a JSON object", folder, checkpoint::kStateFile);
  const auto integer = [&](const char* key) { return json.contains(key) && json[key].is_number_integer(); };
  const auto string = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!integer("ledger_records") || !integer("metrics_lines") || !string("identity_sha256") ||
      !string("ledger_sha256")) {
    return invalid("{}/{}: is not a state of this program", folder, checkpoint::kStateFile);
  }
  state.ledger_records = json["ledger_records"].get<int64_t>();
  state.metrics_lines = json["metrics_lines"].get<int64_t>();
  state.identity = json["identity_sha256"].get<std::string>();
  state.ledger_sha256 = json["ledger_sha256"].get<std::string>();
  return state;
}

}  // namespace

std::string RunFolder::step_name(const std::string& prefix, int64_t step) {
  return fmt::format("{}_{:07}.jsonl", prefix, step);
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
    return ok_status();
  }
  // Not ours unless it is empty or holds only what a start leaves behind.
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(dir));
  for (const std::string& name : names) {
    if (name != ledger::kLedgerFile && name != kMetricsFile && name != kEnvironmentFile &&
        name != kSamplesFolder && name != kEventsFolder) {
      return invalid("--run-dir {}: is not empty and holds no {}; give a new folder", dir,
                     ledger::kLedgerFile);
    }
  }
  return ok_status();
}

Status RunFolder::find_checkpoint() {
  std::vector<std::string> places = {options_.load};
  if (options_.load.empty()) places = {options_.save, options_.run_dir};
  for (const std::string& place : places) {
    if (!options_.load.empty() && !is_directory(place)) return invalid("--load {}: no such folder", place);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> step,
                              checkpoint::newest_complete_checkpoint(place));
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
    ledger_records_ = state.ledger_records;
    metrics_lines_ = state.metrics_lines;
  }
  return ok_status();
}

// --load names another run's folder: its ledger, metrics and samples up to the checkpoint become this run's.
Status RunFolder::adopt_history() {
  if (!resumed() || has_ledger(options_.run_dir)) return ok_status();
  const std::string from = parent_path(checkpoint_folder_);
  LOCKSTEP_RETURN_IF_ERROR(make_directories(join_path(options_.run_dir, kSamplesFolder)));
  for (const char* name : {ledger::kLedgerFile, kMetricsFile}) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(join_path(from, name)));
    LOCKSTEP_RETURN_IF_ERROR(write_file_atomic(join_path(options_.run_dir, name), text));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> samples,
                            list_directory(join_path(from, kSamplesFolder)));
  for (const std::string& name : samples) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                              read_file(join_path(join_path(from, kSamplesFolder), name)));
    LOCKSTEP_RETURN_IF_ERROR(write_samples(name, text));
  }
  return ok_status();
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
  return has_ledger(options_.run_dir)
             ? ledger::truncate_to_records(ledger_path(options_.run_dir), ledger_records_)
             : ok_status();
}

Status RunFolder::start_ledger(const std::string& header) {
  const std::string path = ledger_path(options_.run_dir);
  if (!has_ledger(options_.run_dir)) {
    LOCKSTEP_RETURN_IF_ERROR(remove_all(path));
    LOCKSTEP_ASSIGN_OR_RETURN(ledger_, ledger::LedgerWriter::create(path, header));
    return ledger_->commit();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(ledger_, ledger::LedgerWriter::open_for_append(path));
  if (ledger_->records() == ledger_records_) return ok_status();
  return invalid(
      "{}: has {} records, but checkpoint {} was saved after {}; remove the checkpoint or restore the ledger",
      path, ledger_->records(), checkpoint_folder_, ledger_records_);
}

Result<RunFolder> RunFolder::open(const RunFolderOptions& options, const std::string& header) {
  RunFolder folder;
  folder.options_ = options;
  if (options.run_dir.empty()) return invalid("--run-dir is missing; name the folder the run is written to");
  if (folder.options_.save.empty()) folder.options_.save = options.run_dir;
  folder.identity_sha256_ = sha256_hex(header);
  LOCKSTEP_RETURN_IF_ERROR(folder.check_existing(header));
  LOCKSTEP_RETURN_IF_ERROR(check_output_folder(options.run_dir).with_context("--run-dir"));
  LOCKSTEP_RETURN_IF_ERROR(check_output_folder(folder.options_.save).with_context("--save"));
  LOCKSTEP_RETURN_IF_ERROR(folder.find_checkpoint());
  LOCKSTEP_RETURN_IF_ERROR(make_directories(join_path(options.run_dir, kSamplesFolder)));
  LOCKSTEP_RETURN_IF_ERROR(make_directories(folder.options_.save));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::remove_stale_temporaries(folder.options_.save));
  LOCKSTEP_RETURN_IF_ERROR(folder.adopt_history());
  LOCKSTEP_RETURN_IF_ERROR(folder.cut_back());
  LOCKSTEP_RETURN_IF_ERROR(folder.start_ledger(header));
  LOCKSTEP_ASSIGN_OR_RETURN(folder.metrics_,
                            FileWriter::open(join_path(options.run_dir, kMetricsFile), true));
  LOCKSTEP_ASSIGN_OR_RETURN(
      folder.events_, EventFile::create(join_path(options.run_dir, kEventsFolder), folder.first_step()));
  return folder;
}

Status RunFolder::load(model::Model* model, trainer::OptimizerState* optimizer) {
  LOCKSTEP_CHECK(resumed());
  std::string state;
  return read_checkpoint(checkpoint_folder_, model, optimizer, &state);
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
  return options_.retain > 0 ? checkpoint::retain_checkpoints(options_.save, options_.retain) : ok_status();
}

}  // namespace lockstep::loop
