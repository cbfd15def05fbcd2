// SPDX-License-Identifier: Apache-2.0
#include "model/parameters.h"

#include <algorithm>

namespace lockstep::model {
namespace {

constexpr int64_t kAlignElements = 64;  // whole cache lines of either profile, and what a GPU copies at once

}  // namespace

int64_t ParameterTable::add(const std::string& name, std::vector<int64_t> shape, bool align) {
  if (align) arena_size_ = (arena_size_ + kAlignElements - 1) / kAlignElements * kAlignElements;
  Parameter parameter;
  parameter.name = name;
  parameter.size = 1;
  for (const int64_t n : shape) parameter.size *= n;
  parameter.shape = std::move(shape);
  parameter.offset = arena_size_;
  arena_size_ += parameter.size;
  element_count_ += parameter.size;
  parameters_.push_back(std::move(parameter));
  return parameters_.back().offset;
}

ParameterTable::ParameterTable(const ModelConfig& config) {
  const int64_t h = config.hidden;
  const int64_t f = config.intermediate;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  embedding_ = add("model.embed_tokens.weight", {config.vocab, h}, true);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    LayerOffsets layer;
    layer.input_norm = add(prefix + "input_layernorm.weight", {h}, true);
    layer.qkv = add(prefix + "self_attn.q_proj.weight", {q, h}, true);
    add(prefix + "self_attn.k_proj.weight", {kv, h}, false);
    add(prefix + "self_attn.v_proj.weight", {kv, h}, false);
    layer.qkv_bias = add(prefix + "self_attn.q_proj.bias", {q}, true);
    add(prefix + "self_attn.k_proj.bias", {kv}, false);
    add(prefix + "self_attn.v_proj.bias", {kv}, false);
    layer.o = add(prefix + "self_attn.o_proj.weight", {h, q}, true);
    layer.post_norm = add(prefix + "post_attention_layernorm.weight", {h}, true);
    layer.gate_up = add(prefix + "mlp.gate_proj.weight", {f, h}, true);
    add(prefix + "mlp.up_proj.weight", {f, h}, false);
    layer.down = add(prefix + "mlp.down_proj.weight", {h, f}, true);
    layers_.push_back(layer);
  }
  final_norm_ = add("model.norm.weight", {h}, true);
  head_ = config.tied ? embedding_ : add("lm_head.weight", {config.vocab, h}, true);
  std::sort(parameters_.begin(), parameters_.end(),
            [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
}

const Parameter* ParameterTable::find(const std::string& name) const {
  const auto it = std::lower_bound(parameters_.begin(), parameters_.end(), name,
                                   [](const Parameter& p, const std::string& n) { return p.name < n; });
  return it != parameters_.end() && it->name == name ? &*it : nullptr;
}

const Parameter& ParameterTable::at(int64_t offset) const {
  for (const Parameter& p : parameters_) {
    if (offset >= p.offset && offset < p.offset + p.size) return p;
  }
  check_failed(__FILE__, __LINE__, "offset is inside a parameter", std::to_string(offset));
}

}  // namespace lockstep::model
