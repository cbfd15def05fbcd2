// SPDX-License-Identifier: Apache-2.0
#include "loop/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"
#include "model/digests.h"

namespace lockstep::loop {
namespace {

constexpr const char* kRemedy = "restore it, or remove the checkpoint to go on from an older one";

// Updates whose last line is among the first `records`.
int64_t updates_of(const ledger::Ledger& ledger, int64_t records) {
  return std::count_if(ledger.records.begin(), ledger.records.begin() + records,
                       [](const ledger::LedgerRecord& record) { return record.phase == "optimizer"; });
}

Status check_ledger(const std::string& checkpoint, const SavedState& state, const ledger::Ledger& ledger,
                    std::string_view text) {
  const auto found = static_cast<int64_t>(ledger.records.size());
  if (sha256_hex(ledger.header) != state.identity) {
    return invalid("{}: is the ledger of another run than {}; give --load the folder of one run", ledger.path,
                   checkpoint);
  }
  if (state.ledger_records > found) {
    return invalid("{}: has {} records, but {} was saved after {}; {}", ledger.path, found, checkpoint,
                   state.ledger_records, kRemedy);
  }
  const auto wrong = [&](const std::string& what) {
    return invalid("{}/{}: {} in {}; the checkpoint was changed or is of another run: {}", checkpoint,
                   checkpoint::kStateFile, what, ledger.path, kRemedy);
  };
  if (state.ledger_records < 1) return wrong("ledger_records is below that of any step");
  const auto last = static_cast<size_t>(state.ledger_records) - 1;
  const auto begin = static_cast<size_t>(ledger.line_end_bytes[last]);  // the header is line 0
  const auto end = static_cast<size_t>(ledger.line_end_bytes[last + 1]) - 1;
  if (sha256_hex(text.substr(begin, end - begin)) != state.ledger_sha256)
    return wrong(fmt::format("ledger_sha256 is not that of record {}", state.ledger_records));
  const ledger::LedgerRecord& record = ledger.records[last];
  if (record.step != state.step || record.phase != "optimizer" || last == 0 ||
      ledger.records[last - 1].phase != "weights") {
    return wrong(
        fmt::format("record {} does not end an update of step {}", state.ledger_records, state.step));
  }
  const int64_t updates = updates_of(ledger, state.ledger_records);
  if (state.optimizer_step != updates)
    return wrong(
        fmt::format("optimizer_step is {}, but there are {} updates", state.optimizer_step, updates));
  return ok_status();
}

Status check_metrics(const std::string& run_dir, const std::string& checkpoint, const SavedState& state) {
  const std::string path = join_path(run_dir, kMetricsFile);
  int64_t lines = 0;
  if (path_exists(path)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
    lines = std::count(text.begin(), text.end(), '\n');
  }
  if (state.metrics_lines >= 0 && lines >= state.metrics_lines) return ok_status();
  return invalid("{}: has {} lines, but {} was saved after {}; {}", path, lines, checkpoint,
                 state.metrics_lines, kRemedy);
}

// The sample files of the checkpoint's steps, by the ledger.
std::vector<std::string> sample_files(const ledger::Ledger& ledger, int64_t records) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < records; ++i) {
    const ledger::LedgerRecord& record = ledger.records[static_cast<size_t>(i)];
    if (record.phase == "rewards") names.push_back(sample_file_name("rollout", record.step));
    if (record.phase != "eval") continue;
    const std::map<std::string, std::string> scalars(record.scalars.begin(), record.scalars.end());
    const auto name = scalars.find("name");
    const auto updates = scalars.find("updates");
    if (name == scalars.end() || updates == scalars.end()) continue;
    const auto text = nlohmann::json::parse(name->second, nullptr, false);
    if (!text.is_string()) continue;
    const std::string set = "eval_" + text.get<std::string>();
    names.push_back(updates->second == "0" ? set + "_start.jsonl" : sample_file_name(set, record.step));
  }
  return names;
}

void warn_of_missing_samples(const std::string& run_dir, const ledger::Ledger& ledger, int64_t records) {
  const std::string folder = join_path(run_dir, kSamplesFolder);
  int64_t missing = 0;
  std::string first;
  for (const std::string& name : sample_files(ledger, records)) {
    if (path_exists(join_path(folder, name))) continue;
    if (missing == 0) first = name;
    ++missing;
  }
  if (missing == 0) return;
  log_warn("{}: {} files of steps that are done are missing, first {}; the run goes on without them", folder,
           missing, first);
}

using Digests = std::vector<std::pair<std::string, numerics::Digest128>>;

Status check_tensors(const Digests& found, const ledger::LedgerRecord& record, const std::string& file,
                     const std::string& ledger_path) {
  std::map<std::string, std::string> want;
  for (const auto& [name, digest] : record.tensors) want[name] = digest.hex();
  for (const auto& [name, digest] : found) {
    const auto entry = want.find(name);
    const std::string expected = entry == want.end() ? "nothing" : entry->second;
    if (digest.hex() == expected) continue;
    return invalid("{}: tensor \"{}\" is not that of step {}: digest {}, in {} {}; {}", file, name,
                   record.step, digest.hex(), ledger_path, expected, kRemedy);
  }
  return ok_status();
}

}  // namespace

Result<SavedState> read_state(const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kStateFile);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return invalid("{}: is not a JSON object", path);
  for (const char* key : {"step", "optimizer_step", "ledger_records", "metrics_lines"}) {
    if (!json.contains(key) || !json[key].is_number_integer())
      return invalid("{}: is not a state of this program: {} must be an integer", path, key);
  }
  for (const char* key : {"identity_sha256", "ledger_sha256"}) {
    if (!json.contains(key) || !json[key].is_string())
      return invalid("{}: is not a state of this program: {} must be a string", path, key);
  }
  SavedState state;
  state.step = json["step"].get<int64_t>();
  state.optimizer_step = json["optimizer_step"].get<int64_t>();
  state.ledger_records = json["ledger_records"].get<int64_t>();
  state.metrics_lines = json["metrics_lines"].get<int64_t>();
  state.identity = json["identity_sha256"].get<std::string>();
  state.ledger_sha256 = json["ledger_sha256"].get<std::string>();
  const std::optional<int64_t> number = checkpoint::checkpoint_iteration(base_name(folder));
  if (number && *number != state.step) {
    return invalid(
        "{}: is the state of step {}, not of step {} as the folder's name says; it was renamed or "
        "copied: remove it or give it back its name",
        path, state.step, *number);
  }
  return state;
}

Result<History> read_history(const std::string& run_dir, const std::string& checkpoint,
                             const SavedState& state) {
  const std::string path = join_path(run_dir, ledger::kLedgerFile);
  if (!path_exists(path)) {
    return invalid(
        "{}: is not there, but the checkpoint {} needs the ledger of its run; restore it (where --save put "
        "the "
        "checkpoints apart, copy ledger.jsonl, metrics.jsonl and samples from the run folder to {})",
        path, checkpoint, run_dir);
  }
  History history;
  history.run_dir = run_dir;
  LOCKSTEP_ASSIGN_OR_RETURN(history.ledger_text, read_file(path));
  LOCKSTEP_ASSIGN_OR_RETURN(history.ledger, ledger::parse_ledger(path, history.ledger_text));
  LOCKSTEP_RETURN_IF_ERROR(check_ledger(checkpoint, state, history.ledger, history.ledger_text));
  history.ledger_text.resize(
      static_cast<size_t>(history.ledger.line_end_bytes[static_cast<size_t>(state.ledger_records)]));
  LOCKSTEP_RETURN_IF_ERROR(check_metrics(run_dir, checkpoint, state));
  warn_of_missing_samples(run_dir, history.ledger, state.ledger_records);
  return history;
}

Status check_loaded(const cpu::Context& context, const History& history, const std::string& checkpoint,
                    const SavedState& state, const model::Model& model,
                    const trainer::OptimizerState& optimizer) {
  const auto last = static_cast<size_t>(state.ledger_records) - 1;
  const model::ParameterTable& table = model.table();
  const model::NamedDigests masters = model::digest_parameters(context, table, model.masters());
  Digests found;
  model::append_digests("exp_avg.", model::digest_parameters(context, table, optimizer.m.data()), &found);
  model::append_digests("exp_avg_sq.", model::digest_parameters(context, table, optimizer.v.data()), &found);
  if (model.profile() == model::Profile::kBf16) {  // the weights are made from the masters
    model::append_digests("master.", masters, &found);
  } else {
    LOCKSTEP_RETURN_IF_ERROR(check_tensors(masters, history.ledger.records[last - 1],
                                           join_path(checkpoint, checkpoint::kModelFile),
                                           history.ledger.path));
  }
  return check_tensors(found, history.ledger.records[last], join_path(checkpoint, checkpoint::kOptimizerFile),
                       history.ledger.path);
}

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

std::string sample_file_name(const std::string& prefix, int64_t step) {
  return fmt::format("{}_{:07}.jsonl", prefix, step);
}

std::string_view first_lines(std::string_view text, int64_t lines) {
  size_t end = 0;
  for (int64_t i = 0; i < lines; ++i) {
    const size_t newline = text.find('\n', end);
    if (newline == std::string_view::npos) break;
    end = newline + 1;
  }
  return text.substr(0, end);
}

}  // namespace lockstep::loop
