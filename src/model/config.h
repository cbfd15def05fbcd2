// SPDX-License-Identifier: Apache-2.0
// The model's shape, from a Hugging Face config.json. What this release does not compute is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "ops/attention/attention.h"

namespace lockstep::model {

struct ModelConfig {
  int64_t layers = 0;
  int64_t hidden = 0;        // H
  int64_t intermediate = 0;  // F
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;  // d
  int64_t vocab = 0;      // V, with padding
  int64_t max_positions = 0;
  double rope_base = 10000;
  float rms_eps = 1e-6F;
  bool tied = false;             // the output head is the embedding matrix
  std::vector<int32_t> eos_ids;  // of config.json; generation_config.json and the tokenizer may add more

  int64_t q_size() const { return heads * head_size; }
  int64_t kv_size() const { return kv_heads * head_size; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
  ops::AttentionShape attention_shape() const { return {heads, kv_heads, head_size}; }
};

// `source` names the file in messages. Unknown keys that cannot change the function are reported on stderr.
Result<ModelConfig> parse_model_config(const std::string& json_text, const std::string& source);

// config.json for a checkpoint of weights of `dtype` (float32, bfloat16): the same text with its dtype key
// set (indented by 2, keys in order).
std::string config_json_for(const std::string& json_text, const std::string& dtype);

// Compares a value a launch script states (--num-layers 24) with the config; errors name option, file and
// both values. key: the config.json key; value: its text.
Status check_stated_value(const std::string& json_text, const std::string& source, const std::string& option,
                          const std::string& key, const std::string& value);

}  // namespace lockstep::model
