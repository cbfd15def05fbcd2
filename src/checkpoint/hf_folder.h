// SPDX-License-Identifier: Apache-2.0
// A Hugging Face model folder: weights in model.safetensors or in the shards that
// model.safetensors.index.json lists, config.json, and the tokenizer's files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/status.h"

namespace lockstep::checkpoint {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kModelIndexFile = "model.safetensors.index.json";
inline constexpr const char* kConfigFile = "config.json";

// The weights of a folder under one set of names, whatever the shards.
class HfWeights {
 public:
  // Every shard is opened and checked. kInvalid: no weights; shards missing (all are named, with the number
  // of tensors each should hold); a tensor of the index that its shard does not hold; a tensor of a shard
  // that the index does not name.
  static Result<HfWeights> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::vector<std::string>& names() const { return names_; }  // in byte order

  const TensorInfo* find(std::string_view name) const;  // nullptr: not there
  Result<const TensorInfo*> get(std::string_view name) const;
  // The file that holds `name`; the tensor must be there (get() first).
  const SafetensorsFile& file_of(std::string_view name) const;
  // As SafetensorsFile's.
  Status read(std::string_view name, void* dst) const;
  Status read_f32(std::string_view name, float* dst) const;
  Status read_f32(std::string_view name, int64_t row_begin, int64_t row_end, float* dst) const;

 private:
  Status add_file(const std::string& path);
  Status open_shards(const std::string& index_path);
  int64_t position(std::string_view name) const;  // -1: not there

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;    // in byte order
  std::vector<size_t> file_of_name_;  // index into files_, by position in names_
};

// config.json as text; the model reads it.
Result<std::string> read_config_json(const std::string& folder);

// The files besides weights and config.json that a checkpoint passes on byte for byte, those of them that are
// in `folder`: tokenizer.json, tokenizer_config.json, generation_config.json, vocab.json, merges.txt, ...
Result<std::vector<std::string>> side_files(const std::string& folder);

}  // namespace lockstep::checkpoint
