// SPDX-License-Identifier: Apache-2.0
#include "verify/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/buffer.h"
#include "core/file.h"
#include "ledger/ledger.h"
#include "numerics/digest.h"
#include "verify/path_kind.h"

namespace lockstep::verify {
namespace {

using checkpoint::HfWeights;
using checkpoint::SafetensorsFile;
using checkpoint::TensorInfo;

constexpr int64_t kPieceBlocks = 256;

Result<std::string> tensor_digest(const SafetensorsFile& file, const TensorInfo& tensor) {
  constexpr int64_t kPieceBytes = kPieceBlocks * numerics::kDigestBlockBytes;
  Buffer<unsigned char> bytes(std::min(tensor.size_bytes, kPieceBytes));
  numerics::DigestSum sum;
  for (int64_t begin = 0; begin < tensor.size_bytes; begin += kPieceBytes) {
    const int64_t n = std::min(kPieceBytes, tensor.size_bytes - begin);
    LOCKSTEP_RETURN_IF_ERROR(file.read_bytes(tensor, begin, n, bytes.data()));
    for (int64_t at = 0; at < n; at += numerics::kDigestBlockBytes) {
      sum.add_block(static_cast<uint64_t>((begin + at) / numerics::kDigestBlockBytes), bytes.data() + at,
                    static_cast<size_t>(std::min(numerics::kDigestBlockBytes, n - at)));
    }
  }
  return sum.finish(static_cast<uint64_t>(tensor.size_bytes)).hex();
}

Result<std::string> tensor_statistics(const SafetensorsFile& file, const TensorInfo& tensor) {
  const bool readable =
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
  if (!readable || tensor.elements() == 0) return std::string();
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  double sum = 0;  // ascending: a plain sum for reading, no part of the promise
  int64_t finite = 0;
  const int64_t width = tensor.elements() / tensor.rows();
  const int64_t rows_a_piece = std::max<int64_t>(1, (int64_t{1} << 18) / width);
  Buffer<float> values(std::min(tensor.rows(), rows_a_piece) * width);
  for (int64_t row = 0; row < tensor.rows(); row += rows_a_piece) {
    const int64_t end = std::min(tensor.rows(), row + rows_a_piece);
    LOCKSTEP_RETURN_IF_ERROR(file.read_f32(tensor.name, row, end, values.data()));
    for (int64_t i = 0; i < (end - row) * width; ++i) {
      if (!std::isfinite(values[i])) continue;
      low = std::min(low, values[i]);
      high = std::max(high, values[i]);
      sum += static_cast<double>(values[i]);
      ++finite;
    }
  }
  std::string text = finite == 0 ? ""
                                 : fmt::format("  min {:g} max {:g} mean {:g}", low, high,
                                               sum / static_cast<double>(finite));
  if (finite < tensor.elements()) text += fmt::format("  NaN or infinite: {}", tensor.elements() - finite);
  return text;
}

Status list_tensors(const SafetensorsFile& file, const InspectOptions& options, std::string* out) {
  size_t name_width = 0;
  size_t type_width = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    name_width = std::max(name_width, checkpoint::quote_name(tensor.name).size());
    type_width = std::max(type_width, checkpoint::type_text(tensor.dtype, tensor.shape).size());
  }
  for (const TensorInfo& tensor : file.tensors()) {
    std::string line = fmt::format("  {:<{}}  {:<{}}", checkpoint::quote_name(tensor.name), name_width,
                                   checkpoint::type_text(tensor.dtype, tensor.shape), type_width);
    if (options.digests) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string digest, tensor_digest(file, tensor));
      line += "  " + digest;
    }
    if (options.statistics) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string statistics, tensor_statistics(file, tensor));
      line += statistics;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    *out += line + "\n";
  }
  return ok_status();
}

Status inspect_safetensors(const SafetensorsFile& file, const InspectOptions& options, std::string* out) {
  std::map<std::string_view, int64_t> types;
  int64_t elements = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    ++types[dtype_name(tensor.dtype)];
    elements += tensor.elements();
  }
  std::string type_counts;
  for (const auto& [name, count] : types)
    type_counts += fmt::format("{}{} {}", type_counts.empty() ? "" : ", ", count, name);
  *out += fmt::format("{}: {} tensors ({}), {} elements, {} bytes\n", base_name(file.path()),
                      file.tensors().size(), type_counts, elements, file.file_bytes());
  for (const auto& [key, value] : file.metadata()) {
    *out += fmt::format("  metadata {}: {}\n", checkpoint::quote_name(key), checkpoint::quote_name(value));
  }
  return list_tensors(file, options, out);
}

Status inspect_checkpoint(const std::string& folder, const InspectOptions& options, std::string* out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HfWeights weights, HfWeights::open(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(folder));
  *out += fmt::format("{}: checkpoint folder, {} tensors of weights in {} files\n", folder,
                      weights.names().size(), weights.files().size());
  if (path_exists(join_path(folder, checkpoint::kSumsFile))) {
    const Status whole = checkpoint::verify_sha256sums(folder);
    *out += whole.ok() ? "SHA256SUMS: all files agree\n" : fmt::format("SHA256SUMS: {}\n", whole.message());
  }
  for (const std::string& name : names) {
    const std::string path = join_path(folder, name);
    if (is_directory(path)) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t size, file_size_bytes(path));
    *out += fmt::format("  {:>14}  {}\n", size, name);
  }
  const std::string state = join_path(folder, checkpoint::kStateFile);
  if (path_exists(state)) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::string text, read_file(state));
    text.erase(text.find_last_not_of('\n') + 1);
    *out += fmt::format("state.json: {}\n", text);
  }
  for (const SafetensorsFile& file : weights.files()) {
    LOCKSTEP_RETURN_IF_ERROR(inspect_safetensors(file, options, out));
  }
  const std::string optimizer = join_path(folder, checkpoint::kOptimizerFile);
  if (!path_exists(optimizer)) return ok_status();
  LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(optimizer));
  return inspect_safetensors(file, options, out);
}

// Leaves of the header, one a line.
void list_fields(const std::string& place, const nlohmann::ordered_json& value, std::string* out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items())
      list_fields(place.empty() ? key : fmt::format("{}.{}", place, key), inner, out);
    return;
  }
  *out += fmt::format("  {}: {}\n", place,
                      value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

Status inspect_ledger(const std::string& path, std::string* out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ledger::Ledger ledger, ledger::read_ledger(path));
  *out += fmt::format("{}: ledger, {} records, {} bytes, chain whole\n", path, ledger.records.size(),
                      ledger.size_bytes());
  if (ledger.truncated_bytes > 0) {
    *out += fmt::format("  a torn last line of {} bytes is left out\n", ledger.truncated_bytes);
  }
  *out += "identity\n";
  list_fields("", nlohmann::ordered_json::parse(ledger.header, nullptr, false), out);
  *out += "steps\n";
  for (size_t i = 0; i < ledger.records.size();) {
    const int64_t step = ledger.records[i].step;
    std::string phases;
    for (; i < ledger.records.size() && ledger.records[i].step == step; ++i) {
      phases += fmt::format("  {} {}", ledger.records[i].phase, ledger.records[i].digest.hex().substr(0, 8));
    }
    *out += fmt::format("  {:>6}{}\n", step, phases);
  }
  *out += fmt::format("last line {}\n", ledger.last_sha256);
  return ok_status();
}

Status inspect_run(const std::string& folder, std::string* out) {
  *out += fmt::format("{}: run folder\n", folder);
  LOCKSTEP_RETURN_IF_ERROR(inspect_ledger(join_path(folder, ledger::kLedgerFile), out));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> checkpoints, checkpoint::list_checkpoints(folder));
  *out += fmt::format("{} checkpoints\n", checkpoints.size());
  for (const int64_t iteration : checkpoints) {
    const Status whole = checkpoint::verify_sha256sums(checkpoint::checkpoint_path(folder, iteration),
                                                       checkpoint::CheckDepth::kFiles);
    *out += fmt::format("  {}  {}\n", checkpoint::checkpoint_name(iteration),
                        whole.ok() ? "complete" : whole.message());
  }
  const auto latest = read_file(join_path(folder, checkpoint::kLatestFile));
  if (latest.ok())
    *out += fmt::format("{}: {}\n", checkpoint::kLatestFile, checkpoint::quote_name(latest.value()));
  return ok_status();
}

}  // namespace

Result<std::string> inspect_path(const std::string& path, const InspectOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PathKind kind, path_kind(path));
  std::string out;
  switch (kind) {
    case PathKind::kRunFolder:
      LOCKSTEP_RETURN_IF_ERROR(inspect_run(path, &out));
      break;
    case PathKind::kCheckpointFolder:
      LOCKSTEP_RETURN_IF_ERROR(inspect_checkpoint(path, options, &out));
      break;
    case PathKind::kLedgerFile:
      LOCKSTEP_RETURN_IF_ERROR(inspect_ledger(path, &out));
      break;
    case PathKind::kSafetensorsFile: {
      LOCKSTEP_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
      LOCKSTEP_RETURN_IF_ERROR(inspect_safetensors(file, options, &out));
      break;
    }
  }
  return out;
}

}  // namespace lockstep::verify
