// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kPrefix = "iter_";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::string_view kReplacedSuffix = ".replaced.tmp";

bool plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\n\r\0", 5)) == std::string_view::npos;
}

std::string sums_text(std::vector<std::pair<std::string, std::string>> sums) {
  std::sort(sums.begin(), sums.end());
  std::string text;
  for (const auto& [name, hash] : sums) text += fmt::format("{}  {}\n", hash, name);
  return text;
}

// The iteration of one of our temporary names in a run folder.
bool is_temporary_name(std::string_view name) {
  if (name == std::string(kLatestFile) + ".tmp") return true;
  for (const std::string_view suffix : {kReplacedSuffix, kTemporarySuffix}) {
    if (name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix) {
      return checkpoint_iteration(name.substr(0, name.size() - suffix.size())).has_value();
    }
  }
  return false;
}

}  // namespace

std::string checkpoint_name(int64_t iteration) {
  return fmt::format("{}{:07}", kPrefix, iteration);
}

std::string checkpoint_path(const std::string& run_dir, int64_t iteration) {
  return join_path(run_dir, checkpoint_name(iteration));
}

std::optional<int64_t> checkpoint_iteration(std::string_view name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.empty() || digits.size() > 18) return std::nullopt;  // fits int64
  int64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  if (checkpoint_name(value) != name) return std::nullopt;
  return value;
}

Result<CheckpointWriter> CheckpointWriter::begin(const std::string& run_dir, int64_t iteration) {
  LOCKSTEP_CHECK(iteration >= 0);
  CheckpointWriter writer;
  writer.run_dir_ = run_dir;
  writer.iteration_ = iteration;
  writer.final_ = checkpoint_path(run_dir, iteration);
  LOCKSTEP_RETURN_IF_ERROR(writer.prepare());
  return writer;
}

Result<CheckpointWriter> CheckpointWriter::begin_folder(const std::string& folder) {
  CheckpointWriter writer;
  writer.final_ = folder;
  while (writer.final_.size() > 1 && writer.final_.back() == '/') writer.final_.pop_back();
  if (path_exists(writer.final_)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> entries, list_directory(writer.final_));
    if (!entries.empty()) {
      return invalid("{}: is there and not empty; name a new folder or remove it", writer.final_);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(writer.prepare());
  return writer;
}

Status CheckpointWriter::prepare() {
  const std::string path = final_ + std::string(kTemporarySuffix);
  LOCKSTEP_RETURN_IF_ERROR(remove_all(path));
  LOCKSTEP_RETURN_IF_ERROR(make_directories(path));
  temporary_.reset(new std::string(path));
  return ok_status();
}

void CheckpointWriter::RemoveFolder::operator()(const std::string* path) const {
  const Status status = remove_all(*path);
  if (!status.ok()) log_warning(status.message());
  delete path;
}

Result<SafetensorsWriter*> CheckpointWriter::add_safetensors(const std::string& name,
                                                             std::vector<TensorSpec> specs) {
  LOCKSTEP_CHECK(plain_name(name), name);
  LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                            SafetensorsWriter::create(join_path(*temporary_, name), std::move(specs)));
  tensors_.emplace_back(name, std::make_unique<SafetensorsWriter>(std::move(writer)));
  return tensors_.back().second.get();
}

Status CheckpointWriter::add_file(const std::string& name, std::string_view bytes) {
  LOCKSTEP_CHECK(plain_name(name), name);
  LOCKSTEP_ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(join_path(*temporary_, name)));
  LOCKSTEP_RETURN_IF_ERROR(file.write(bytes));
  LOCKSTEP_RETURN_IF_ERROR(file.close());
  sums_.emplace_back(name, sha256_hex(bytes));
  return ok_status();
}

Status CheckpointWriter::copy_side_files(const std::string& folder) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, side_files(folder));
  for (const std::string& name : names) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, read_file(join_path(folder, name)));
    LOCKSTEP_RETURN_IF_ERROR(add_file(name, bytes));
  }
  return ok_status();
}

Status CheckpointWriter::settle_existing(const std::string& sums, bool* keep) {
  *keep = false;
  if (run_dir_.empty() || !path_exists(final_)) return ok_status();  // an empty folder is renamed over
  const Status whole = verify_sha256sums(final_);
  if (!whole.ok()) {
    log_warn("{}; it is replaced", whole.message());
    const std::string aside = final_ + std::string(kReplacedSuffix);
    LOCKSTEP_RETURN_IF_ERROR(remove_all(aside));
    return rename_path(final_, aside);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto old_sums, read_sha256sums(final_));
  if (sums_text(old_sums) == sums) {
    *keep = true;
    return ok_status();
  }
  std::string first;
  for (const auto& entry : sums_) {
    const bool same = std::find(old_sums.begin(), old_sums.end(), entry) != old_sums.end();
    if (!same && (first.empty() || entry.first < first)) first = entry.first;
  }
  return stopped(
      "{}: is there with other contents (first: {}): the step taken again gave other bits, or another run "
      "wrote here; "
      "compare with lockstep verify, or save to another folder",
      final_, first.empty() ? "a file more" : first);
}

Status CheckpointWriter::commit() {
  LOCKSTEP_CHECK(temporary_ != nullptr, "commit twice");
  for (const auto& [name, writer] : tensors_) {
    LOCKSTEP_CHECK(!writer->sha256().empty(), "not closed: " + name);
    sums_.emplace_back(name, writer->sha256());
  }
  tensors_.clear();
  const std::string sums = sums_text(sums_);
  LOCKSTEP_ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(join_path(*temporary_, kSumsFile)));
  LOCKSTEP_RETURN_IF_ERROR(file.write(sums));
  LOCKSTEP_RETURN_IF_ERROR(file.close());
  LOCKSTEP_RETURN_IF_ERROR(sync_directory(*temporary_));
  bool keep = false;
  LOCKSTEP_RETURN_IF_ERROR(settle_existing(sums, &keep));
  if (!keep) {
    LOCKSTEP_RETURN_IF_ERROR(rename_path(*temporary_, final_));
  }
  temporary_.reset();  // of a kept folder: removed; of a renamed one: there is nothing left under this name
  if (run_dir_.empty()) return ok_status();
  LOCKSTEP_RETURN_IF_ERROR(remove_all(final_ + std::string(kReplacedSuffix)));
  return write_latest(run_dir_, iteration_);
}

Status write_latest(const std::string& run_dir, int64_t iteration) {
  return write_file_atomic(join_path(run_dir, kLatestFile), std::to_string(iteration));
}

Result<Checkpoint> open_checkpoint(const std::string& folder) {
  LOCKSTEP_ASSIGN_OR_RETURN(HfWeights weights, HfWeights::open(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsFile optimizer,
                            SafetensorsFile::open(join_path(folder, kOptimizerFile)));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string state, read_file(join_path(folder, kStateFile)));
  return Checkpoint{folder, std::move(weights), std::move(optimizer), std::move(state)};
}

Result<std::vector<int64_t>> list_checkpoints(const std::string& run_dir) {
  std::vector<int64_t> iterations;
  if (!path_exists(run_dir)) return iterations;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(run_dir));
  for (const std::string& name : names) {
    const std::optional<int64_t> iteration = checkpoint_iteration(name);
    if (iteration && is_directory(join_path(run_dir, name))) iterations.push_back(*iteration);
  }
  std::sort(iterations.begin(), iterations.end());
  return iterations;
}

Result<std::vector<std::pair<std::string, std::string>>> read_sha256sums(const std::string& folder) {
  const std::string path = join_path(folder, kSumsFile);
  if (!path_exists(path)) return invalid("{}: is not there: the checkpoint is not complete", path);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<std::pair<std::string, std::string>> sums;
  size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return invalid("{}:{}: the last line is cut", path, line);
    const std::string_view row = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    // "hash  name" or "hash *name".
    const bool shaped = row.size() > 66 && row[64] == ' ' && (row[65] == ' ' || row[65] == '*') &&
                        row.substr(0, 64).find_first_not_of("0123456789abcdef") == std::string_view::npos &&
                        plain_name(row.substr(66));
    if (!shaped)
      return invalid("{}:{}: must be 64 hexadecimal digits, two spaces and a file name", path, line);
    sums.emplace_back(row.substr(66), row.substr(0, 64));
  }
  if (sums.empty()) return invalid("{}: is empty", path);
  return sums;
}

Status verify_sha256sums(const std::string& folder, CheckDepth depth) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto sums, read_sha256sums(folder));
  for (const auto& [name, want] : sums) {
    const std::string path = join_path(folder, name);
    if (!path_exists(path)) return invalid("{}: is not there, but {} lists it", path, kSumsFile);
    if (depth == CheckDepth::kFiles) {
      const std::string_view ending = ".safetensors";
      const bool tensors = name.size() > ending.size() && name.substr(name.size() - ending.size()) == ending;
      if (tensors) LOCKSTEP_RETURN_IF_ERROR(SafetensorsFile::open(path).status());
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string found, sha256_file(path));
    if (found != want) {
      return invalid("{}: is damaged: SHA-256 expected {}, found {}", path, want, found);
    }
  }
  return ok_status();
}

Result<std::optional<int64_t>> newest_complete_checkpoint(const std::string& run_dir, CheckDepth depth) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> iterations, list_checkpoints(run_dir));
  for (auto it = iterations.rbegin(); it != iterations.rend(); ++it) {
    const Status status = verify_sha256sums(checkpoint_path(run_dir, *it), depth);
    if (status.ok()) return std::optional<int64_t>(*it);
    log_warn("{}; {} is passed over", status.message(), checkpoint_name(*it));
  }
  return std::optional<int64_t>();
}

Status remove_stale_temporaries(const std::string& run_dir) {
  if (!path_exists(run_dir)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(run_dir));
  for (const std::string& name : names) {
    if (is_temporary_name(name)) LOCKSTEP_RETURN_IF_ERROR(remove_all(join_path(run_dir, name)));
  }
  return ok_status();
}

Status retain_checkpoints(const std::string& run_dir, int64_t keep, int64_t newest) {
  if (keep == -1) return ok_status();
  if (keep < 1) return invalid("--save-retain must be -1 (all) or at least 1, found {}", keep);
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> iterations, list_checkpoints(run_dir));
  iterations.erase(std::upper_bound(iterations.begin(), iterations.end(), newest), iterations.end());
  for (int64_t i = 0; i + keep < static_cast<int64_t>(iterations.size()); ++i) {
    // Under a temporary name first: a kill in the middle leaves no half a checkpoint under a final name.
    const std::string path = checkpoint_path(run_dir, iterations[static_cast<size_t>(i)]);
    const std::string aside = path + std::string(kTemporarySuffix);
    LOCKSTEP_RETURN_IF_ERROR(remove_all(aside));
    LOCKSTEP_RETURN_IF_ERROR(rename_path(path, aside));
    LOCKSTEP_RETURN_IF_ERROR(remove_all(aside));
  }
  return ok_status();
}

Status check_space(const std::string& path, int64_t needed_bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t free_bytes, free_space_bytes(path));
  if (free_bytes >= needed_bytes) return ok_status();
  return invalid("{}: a checkpoint needs {} bytes, this volume has {} free; free space or save elsewhere",
                 path, needed_bytes, free_bytes);
}

}  // namespace lockstep::checkpoint
