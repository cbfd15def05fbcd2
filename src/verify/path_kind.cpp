// SPDX-License-Identifier: Apache-2.0
#include "verify/path_kind.h"

#include <string_view>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "ledger/ledger.h"

namespace lockstep::verify {
namespace {

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

}  // namespace

Result<PathKind> path_kind(const std::string& path) {
  if (!path_exists(path)) return invalid("{}: is not there", path);
  if (!is_directory(path)) {
    if (ends_with(path, ".safetensors")) return PathKind::kSafetensorsFile;
    if (ends_with(path, ".jsonl")) return PathKind::kLedgerFile;
    return invalid("{}: must end in .safetensors or .jsonl, or be a run or checkpoint folder", path);
  }
  if (path_exists(join_path(path, ledger::kLedgerFile))) return PathKind::kRunFolder;
  for (const char* name : {checkpoint::kSumsFile, checkpoint::kModelFile, checkpoint::kModelIndexFile}) {
    if (path_exists(join_path(path, name))) return PathKind::kCheckpointFolder;
  }
  return invalid("{}: is neither a run folder (no {}) nor a checkpoint folder (no {})", path,
                 ledger::kLedgerFile, checkpoint::kModelFile);
}

const char* kind_name(PathKind kind) {
  switch (kind) {
    case PathKind::kRunFolder:
      return "a run folder";
    case PathKind::kCheckpointFolder:
      return "a checkpoint folder";
    case PathKind::kLedgerFile:
      return "a ledger file";
    case PathKind::kSafetensorsFile:
      return "a safetensors file";
  }
  return "";
}

}  // namespace lockstep::verify
