// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_folder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "core/log.h"
#include "core/nesting.h"
#include "core/suggest.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kSideFiles[] = {"added_tokens.json",  "chat_template.jinja",
                                      "chat_template.json", "generation_config.json",
                                      "merges.txt",         "special_tokens_map.json",
                                      "tokenizer.json",     "tokenizer_config.json",
                                      "tokenizer.model",    "vocab.json"};

// Shard -> names of its tensors.
using WeightMap = std::map<std::string, std::set<std::string>>;

Result<WeightMap> parse_index(const std::string& path, const std::string& text) {
  if (nests_deeper(text)) {
    return invalid("{}: nests deeper than {}; it is not the index of a checkpoint", path, kMostNesting);
  }
  // A key that stands twice would silently win or lose: the names seen in weight_map are counted.
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 2) {
      const auto& name = value.get_ref<const std::string&>();
      if (!seen.insert(name).second && twice.empty()) twice = name;
    }
    if (event == Json::parse_event_t::object_start && depth == 1) seen.clear();
    return true;
  };
  const Json index = Json::parse(text, watch, /*allow_exceptions=*/false);
  const bool hidden = text.find('\0') != std::string::npos;  // the parser stops at a zero byte
  if (hidden || !index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return invalid("{}: must be a JSON object with an object weight_map", path);
  }
  if (!twice.empty()) return invalid("{}: the key {} stands twice", path, quote_name(twice));
  WeightMap shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) return invalid("{}: weight_map: {} must name a file", path, quote_name(name));
    const auto& shard = file.get_ref<const std::string&>();
    const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                       shard.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
    if (!plain) {
      return invalid("{}: weight_map: {} names {}, which is not a file of this folder", path,
                     quote_name(name), quote_name(shard));
    }
    shards[shard].insert(name);
  }
  if (shards.empty()) return invalid("{}: weight_map is empty", path);
  return shards;
}

}  // namespace

Status HfWeights::add_file(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  files_.push_back(std::move(file));
  return ok_status();
}

Status HfWeights::open_shards(const std::string& index_path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(index_path));
  LOCKSTEP_ASSIGN_OR_RETURN(const WeightMap shards, parse_index(index_path, text));
  std::string missing;
  for (const auto& [shard, tensors] : shards) {
    if (path_exists(join_path(folder_, shard))) continue;
    missing +=
        fmt::format("{}{} ({} tensors)", missing.empty() ? "" : ", ", quote_name(shard), tensors.size());
  }
  if (!missing.empty()) {
    return invalid("{}: files it names are missing: {}; download them again", index_path, missing);
  }
  for (const auto& [shard, tensors] : shards) {
    LOCKSTEP_RETURN_IF_ERROR(add_file(join_path(folder_, shard)));
    const SafetensorsFile& file = files_.back();
    for (const std::string& name : tensors) {
      if (file.find(name) == nullptr) {
        return invalid("{}: tensor {} is not in {}, where {} puts it", file.path(), quote_name(name),
                       quote_name(shard), kModelIndexFile);
      }
    }
    for (const TensorInfo& tensor : file.tensors()) {
      if (tensors.count(tensor.name) == 0) {
        return invalid("{}: tensor {} is not listed for this file in {}", file.path(),
                       quote_name(tensor.name), kModelIndexFile);
      }
    }
  }
  return ok_status();
}

Result<HfWeights> HfWeights::open(const std::string& folder) {
  if (!is_directory(folder)) return invalid("{}: is not a folder", folder);
  HfWeights weights;
  weights.folder_ = folder;
  const std::string single = join_path(folder, kModelFile);
  const std::string index = join_path(folder, kModelIndexFile);
  if (path_exists(single)) {
    if (path_exists(index)) log_warn("{}: {} is used, {} is not", folder, kModelFile, kModelIndexFile);
    LOCKSTEP_RETURN_IF_ERROR(weights.add_file(single));
  } else if (path_exists(index)) {
    LOCKSTEP_RETURN_IF_ERROR(weights.open_shards(index));
  } else {
    return invalid("{}: holds neither {} nor {}; other weight formats must be converted to safetensors first",
                   folder, kModelFile, kModelIndexFile);
  }
  std::map<std::string, size_t> all;  // names are unique: the index gives each one file
  for (size_t i = 0; i < weights.files_.size(); ++i) {
    for (const TensorInfo& tensor : weights.files_[i].tensors()) all[tensor.name] = i;
  }
  for (const auto& [name, file] : all) {
    weights.names_.push_back(name);
    weights.file_of_name_.push_back(file);
  }
  return weights;
}

int64_t HfWeights::position(std::string_view name) const {
  const auto it = std::lower_bound(names_.begin(), names_.end(), name);
  return it != names_.end() && *it == name ? it - names_.begin() : -1;
}

const SafetensorsFile& HfWeights::file_of(std::string_view name) const {
  const int64_t at = position(name);
  LOCKSTEP_CHECK(at >= 0, "no tensor " + std::string(name));
  return files_[file_of_name_[static_cast<size_t>(at)]];
}

const TensorInfo* HfWeights::find(std::string_view name) const {
  return position(name) < 0 ? nullptr : file_of(name).find(name);
}

Result<const TensorInfo*> HfWeights::get(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor != nullptr) return tensor;
  const std::string near = nearest_name(name, names_);
  return invalid("{}: has no tensor {}{} ({} tensors)", folder_, quote_name(name),
                 near.empty() ? "" : "; nearest: " + quote_name(near), names_.size());
}

Status HfWeights::read(std::string_view name, void* dst) const {
  LOCKSTEP_RETURN_IF_ERROR(get(name).status());
  return file_of(name).read(name, dst);
}

Status HfWeights::read_f32(std::string_view name, float* dst) const {
  LOCKSTEP_RETURN_IF_ERROR(get(name).status());
  return file_of(name).read_f32(name, dst);
}

Status HfWeights::read_f32(std::string_view name, int64_t row_begin, int64_t row_end, float* dst) const {
  LOCKSTEP_RETURN_IF_ERROR(get(name).status());
  return file_of(name).read_f32(name, row_begin, row_end, dst);
}

Result<std::string> read_config_json(const std::string& folder) {
  if (!is_directory(folder)) return invalid("{}: is not a folder", folder);
  return read_file(join_path(folder, kConfigFile));
}

Result<std::vector<std::string>> side_files(const std::string& folder) {
  if (!is_directory(folder)) return invalid("{}: is not a folder", folder);
  std::vector<std::string> found;
  for (const char* name : kSideFiles) {
    if (path_exists(join_path(folder, name))) found.emplace_back(name);
  }
  return found;
}

}  // namespace lockstep::checkpoint
