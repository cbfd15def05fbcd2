// SPDX-License-Identifier: Apache-2.0
// Names, shapes and places of the parameters. One arena layout serves weights, moments and the gradient
// image: q, k, v are adjacent rows of one matrix, gate and up of another, and every Hugging Face tensor is
// one contiguous slice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace lockstep::model {

struct Parameter {
  std::string name;            // Hugging Face name
  std::vector<int64_t> shape;  // of the file
  int64_t offset = 0;          // elements from the arena's start
  int64_t size = 0;            // elements
  bool decays() const { return shape.size() > 1; }
};

// Offsets of one layer, in elements.
struct LayerOffsets {
  int64_t input_norm = 0;  // [H]
  int64_t qkv = 0;         // [(heads + 2*kv_heads)*d, H]
  int64_t qkv_bias = 0;    // [(heads + 2*kv_heads)*d]
  int64_t o = 0;           // [H, heads*d]
  int64_t post_norm = 0;   // [H]
  int64_t gate_up = 0;     // [2F, H]
  int64_t down = 0;        // [H, F]
};

class ParameterTable {
 public:
  explicit ParameterTable(const ModelConfig& config);

  const std::vector<Parameter>& by_name() const { return parameters_; }  // byte order of names
  const Parameter* find(const std::string& name) const;
  // The first parameter (in byte order of names) whose slice meets [offset, offset + size).
  const Parameter& at(int64_t offset) const;
  int64_t arena_size() const { return arena_size_; }  // elements, with alignment gaps (which stay zero)
  int64_t element_count() const { return element_count_; }
  const LayerOffsets& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }
  int64_t embedding() const { return embedding_; }    // [V, H]
  int64_t final_norm() const { return final_norm_; }  // [H]
  int64_t head() const { return head_; }              // [V, H]; the embedding when tied

 private:
  int64_t add(const std::string& name, std::vector<int64_t> shape, bool align);

  std::vector<Parameter> parameters_;
  std::vector<LayerOffsets> layers_;
  int64_t arena_size_ = 0;
  int64_t element_count_ = 0;
  int64_t embedding_ = 0;
  int64_t final_norm_ = 0;
  int64_t head_ = 0;
};

}  // namespace lockstep::model
