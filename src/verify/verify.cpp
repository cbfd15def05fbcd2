// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "core/sha256.h"
#include "ledger/ledger.h"
#include "verify/compare_ledgers.h"
#include "verify/compare_tensors.h"
#include "verify/path_kind.h"
#include "verify/run_notes.h"

namespace lockstep::verify {
namespace {

using checkpoint::HfWeights;
using checkpoint::SafetensorsFile;

// The files of a checkpoint folder by what is compared of them.
struct FolderContents {
  std::optional<HfWeights> weights;
  std::set<std::string> tensor_files;  // besides the weights
  std::set<std::string> side_files;
};

Result<FolderContents> read_folder(const std::string& folder) {
  FolderContents contents;
  std::set<std::string> weight_files = {checkpoint::kModelIndexFile};
  LOCKSTEP_ASSIGN_OR_RETURN(contents.weights, HfWeights::open(folder));
  for (const SafetensorsFile& file : contents.weights->files()) weight_files.insert(base_name(file.path()));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(folder));
  constexpr std::string_view kEnding = ".safetensors";
  for (const std::string& name : names) {
    if (weight_files.count(name) > 0 || name == checkpoint::kSumsFile) continue;
    if (is_directory(join_path(folder, name))) continue;
    const bool tensors = name.size() > kEnding.size() && name.substr(name.size() - kEnding.size()) == kEnding;
    (tensors ? contents.tensor_files : contents.side_files).insert(name);
  }
  return contents;
}

// Collects what the parts of a comparison find.
class Report {
 public:
  void same(const std::string& what) { same_.push_back(what); }
  void different(std::string line) { lines_.push_back(std::move(line)); }
  void note(std::string line) { notes_.push_back(std::move(line)); }

  Status tensors(const std::string& where, const TensorSet& a, const TensorSet& b, int64_t max_lines) {
    LOCKSTEP_ASSIGN_OR_RETURN(const TensorComparison found, compare_tensors(a, b, max_lines));
    const std::string prefix = where.empty() ? "" : where + ": ";
    if (found.different == 0) {
      same(fmt::format("{}{} tensors, {} bytes", prefix, found.tensors, found.bytes));
      return ok_status();
    }
    for (const std::string& line : found.lines) different(prefix + line);
    const auto listed = static_cast<int64_t>(found.lines.size());
    if (listed < found.different)
      different(fmt::format("{}and {} more tensors", prefix, found.different - listed));
    note(fmt::format("{}{} of {} tensors differ", prefix, found.different, found.tensors));
    return ok_status();
  }

  Verdict verdict() const {
    Verdict v;
    if (lines_.empty()) {
      v.lines.push_back(fmt::format("same: {}", fmt::join(same_, "; ")));
    } else {
      v.code = StatusCode::kDifferent;
      v.lines.push_back("different: " + lines_[0]);
      for (size_t i = 1; i < lines_.size(); ++i) v.lines.push_back("  " + lines_[i]);
      if (!same_.empty()) v.lines.push_back(fmt::format("  same: {}", fmt::join(same_, "; ")));
    }
    for (const std::string& line : notes_) v.lines.push_back("  " + line);
    return v;
  }

 private:
  std::vector<std::string> same_, lines_, notes_;
};

Result<Verdict> verify_safetensors(const std::string& a, const std::string& b, const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile left, SafetensorsFile::open(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile right, SafetensorsFile::open(b));
  TensorSet left_set, right_set;
  add_tensors(left, &left_set);
  add_tensors(right, &right_set);
  Report report;
  LOCKSTEP_RETURN_IF_ERROR(report.tensors("", left_set, right_set, options.max_lines));
  if (left.metadata() != right.metadata()) report.note("note: the files' metadata differ");
  return report.verdict();
}

// Files that both folders should hold, by hash.
Status compare_side_files(const std::string& a, const std::string& b, const std::set<std::string>& left,
                          const std::set<std::string>& right, Report* report) {
  std::set<std::string> all = left;
  all.insert(right.begin(), right.end());
  int64_t same = 0;
  for (const std::string& name : all) {
    if (left.count(name) == 0 || right.count(name) == 0) {
      report->different(fmt::format("{}: only in the {}", name, left.count(name) == 0 ? "second" : "first"));
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string left_hash, sha256_file(join_path(a, name)));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string right_hash, sha256_file(join_path(b, name)));
    if (left_hash == right_hash) {
      ++same;
    } else {
      report->different(fmt::format("{}: SHA-256 {} and {}", name, left_hash, right_hash));
    }
  }
  if (same > 0) report->same(fmt::format("{} other files", same));
  return ok_status();
}

Result<Verdict> verify_checkpoints(const std::string& a, const std::string& b, const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const FolderContents left, read_folder(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const FolderContents right, read_folder(b));
  Report report;
  TensorSet left_set, right_set;
  for (const SafetensorsFile& file : left.weights->files()) add_tensors(file, &left_set);
  for (const SafetensorsFile& file : right.weights->files()) add_tensors(file, &right_set);
  LOCKSTEP_RETURN_IF_ERROR(report.tensors("weights", left_set, right_set, options.max_lines));
  if (left.weights->files().size() != right.weights->files().size()) {
    report.note(fmt::format("note: the weights lie in {} and {} files", left.weights->files().size(),
                            right.weights->files().size()));
  }
  std::set<std::string> left_files = left.side_files;
  std::set<std::string> right_files = right.side_files;
  for (const std::string& name : left.tensor_files) {
    if (right.tensor_files.count(name) == 0) {
      left_files.insert(name);
      continue;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile left_file, SafetensorsFile::open(join_path(a, name)));
    LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile right_file, SafetensorsFile::open(join_path(b, name)));
    TensorSet x, y;
    add_tensors(left_file, &x);
    add_tensors(right_file, &y);
    LOCKSTEP_RETURN_IF_ERROR(report.tensors(name, x, y, options.max_lines));
  }
  for (const std::string& name : right.tensor_files) {
    if (left.tensor_files.count(name) == 0) right_files.insert(name);
  }
  LOCKSTEP_RETURN_IF_ERROR(compare_side_files(a, b, left_files, right_files, &report));
  return report.verdict();
}

void note_torn_lines(const ledger::Ledger& a, const ledger::Ledger& b, Verdict* verdict) {
  for (const ledger::Ledger* l : {&a, &b}) {
    if (l->truncated_bytes == 0) continue;
    verdict->lines.push_back(
        fmt::format("  note: {}: {} bytes of a torn last line are left out", l->path, l->truncated_bytes));
  }
}

Result<Verdict> verify_ledgers(const std::string& a, const std::string& b, const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ledger::Ledger left, ledger::read_ledger(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const ledger::Ledger right, ledger::read_ledger(b));
  Verdict verdict = compare_ledgers(left, right, options).verdict;
  note_torn_lines(left, right, &verdict);
  return verdict;
}

// A file of two checkpoints by its bytes: what differs, "" when nothing does. The sums say which side was
// changed.
Result<std::string> file_difference(const std::string& name, const std::string& a, const std::string& b,
                                    const std::map<std::string, std::string>& left_sums,
                                    const std::map<std::string, std::string>& right_sums) {
  std::string hashes[2];
  std::string changed;
  for (const int side : {0, 1}) {
    const char* which = side == 0 ? "first" : "second";
    const std::string path = join_path(side == 0 ? a : b, name);
    if (!path_exists(path)) return fmt::format("is not in the {}", which);
    LOCKSTEP_ASSIGN_OR_RETURN(hashes[side], sha256_file(path));
    const auto& sums = side == 0 ? left_sums : right_sums;
    const auto sum = sums.find(name);
    if (sum != sums.end() && sum->second == hashes[side]) continue;
    changed += fmt::format("{} the {} does not agree with its {}", changed.empty() ? ";" : ",", which,
                           checkpoint::kSumsFile);
  }
  if (hashes[0] == hashes[1] && changed.empty()) return std::string();
  if (hashes[0] == hashes[1]) return fmt::format("SHA-256 {} in both{}", hashes[0], changed);
  return fmt::format("SHA-256 {} and {}{}", hashes[0], hashes[1], changed);
}

// Checkpoints that both runs have, by the bytes of their files. The ledgers are equal already, so a
// difference is one of saving or came later.
Status compare_saved(const std::string& a, const std::string& b, Verdict* verdict) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> left, checkpoint::list_checkpoints(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> right, checkpoint::list_checkpoints(b));
  int64_t same = 0;
  for (const int64_t iteration : left) {
    if (!std::binary_search(right.begin(), right.end(), iteration)) continue;
    const std::string left_folder = checkpoint::checkpoint_path(a, iteration);
    const std::string right_folder = checkpoint::checkpoint_path(b, iteration);
    LOCKSTEP_ASSIGN_OR_RETURN(const auto left_list, checkpoint::read_sha256sums(left_folder));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto right_list, checkpoint::read_sha256sums(right_folder));
    const std::map<std::string, std::string> left_sums(left_list.begin(), left_list.end());
    const std::map<std::string, std::string> right_sums(right_list.begin(), right_list.end());
    std::map<std::string, std::string> all = left_sums;
    all.insert(right_sums.begin(), right_sums.end());
    for (const auto& entry : all) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const std::string difference,
          file_difference(entry.first, left_folder, right_folder, left_sums, right_sums));
      if (difference.empty()) continue;
      verdict->code = StatusCode::kDifferent;
      verdict->lines.insert(verdict->lines.begin(),
                            fmt::format("different: {}/{}, though the ledgers are equal: {}",
                                        checkpoint::checkpoint_name(iteration), entry.first, difference));
      return ok_status();
    }
    ++same;
  }
  if (same > 0) verdict->lines.push_back(fmt::format("  checkpoints in both: {}, same bytes", same));
  return ok_status();
}

// Files of samples/ that both runs have.
Status compare_samples(const std::string& a, const std::string& b, Verdict* verdict) {
  const std::string left = join_path(a, "samples");
  const std::string right = join_path(b, "samples");
  if (!is_directory(left) || !is_directory(right)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(left));
  int64_t same = 0;
  for (const std::string& name : names) {
    if (!path_exists(join_path(right, name))) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string left_hash, sha256_file(join_path(left, name)));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string right_hash, sha256_file(join_path(right, name)));
    if (left_hash == right_hash) {
      ++same;
      continue;
    }
    verdict->code = StatusCode::kDifferent;
    verdict->lines.insert(
        verdict->lines.begin(),
        fmt::format("different: samples/{}, though the ledgers are equal: SHA-256 {} and {}", name, left_hash,
                    right_hash));
    return ok_status();
  }
  if (same > 0) verdict->lines.push_back(fmt::format("  sample files in both: {}, same bytes", same));
  return ok_status();
}

Result<Verdict> verify_runs(const std::string& a, const std::string& b, const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ledger::Ledger left,
                            ledger::read_ledger(join_path(a, ledger::kLedgerFile)));
  LOCKSTEP_ASSIGN_OR_RETURN(const ledger::Ledger right,
                            ledger::read_ledger(join_path(b, ledger::kLedgerFile)));
  LedgerComparison found = compare_ledgers(left, right, options);
  if (found.first_step) {
    const std::vector<std::string> notes = promise_notes(a, b, *found.first_step);
    found.verdict.lines.insert(found.verdict.lines.end(), notes.begin(), notes.end());
  }
  if (found.verdict.code == StatusCode::kOk) LOCKSTEP_RETURN_IF_ERROR(compare_saved(a, b, &found.verdict));
  if (found.verdict.code == StatusCode::kOk) LOCKSTEP_RETURN_IF_ERROR(compare_samples(a, b, &found.verdict));
  note_torn_lines(left, right, &found.verdict);
  return found.verdict;
}

}  // namespace

Result<Verdict> verify_paths(const std::string& a, const std::string& b, const VerifyOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PathKind kind, path_kind(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const PathKind other, path_kind(b));
  if (kind != other) {
    return invalid("{} is {}, {} is {}: two of one kind are compared", a, kind_name(kind), b,
                   kind_name(other));
  }
  switch (kind) {
    case PathKind::kRunFolder:
      return verify_runs(a, b, options);
    case PathKind::kCheckpointFolder:
      return verify_checkpoints(a, b, options);
    case PathKind::kLedgerFile:
      return verify_ledgers(a, b, options);
    case PathKind::kSafetensorsFile:
      return verify_safetensors(a, b, options);
  }
  return invalid("{}: of unknown kind", a);
}

}  // namespace lockstep::verify
