// SPDX-License-Identifier: Apache-2.0
// The weights of one model and its one forward definition, used by rollout and trainer alike.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "device/cpu/context.h"
#include "model/config.h"
#include "model/parameters.h"
#include "ops/matmul/matmul.h"
#include "ops/rope/rope.h"

namespace lockstep::model {

// Rows [first_row, first_row + rows) of a batch are consecutive positions of one sequence. pages[i] holds
// keys and values of positions [64 i, 64 i + 64) of all layers: layer l's K block at pages[i] +
// l*layer_stride, its V block kv_block_floats behind. layer_stride 0: one layer at a time shares the page
// (training).
template <class Element>
struct SequenceRunOf {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  Element* const* pages = nullptr;  // [ceil((first_position + rows)/64)]
};

template <class Element>
struct ForwardBatchOf {
  int64_t rows = 0;
  const int32_t* ids = nullptr;              // [rows]
  const int32_t* positions = nullptr;        // [rows], each < max_positions
  std::vector<SequenceRunOf<Element>> runs;  // ascending; cover all rows but padding (profile bf16)
  int64_t layer_stride = 0;                  // elements
};
using SequenceRun = SequenceRunOf<float>;
using ForwardBatch = ForwardBatchOf<float>;

// What a layer's backward pass needs; all row-major.
struct LayerActivations {
  Buffer<float> inverse_rms1;  // [rows]
  Buffer<float> qkv;           // [rows, qkv_size] after bias and RoPE
  Buffer<float> max_exponent;  // [rows, heads]
  Buffer<float> inverse_sum;   // [rows, heads]
  Buffer<float> attention;     // [rows, heads*d]
  Buffer<float> h_mid;         // [rows, H] residual stream after attention
  Buffer<float> inverse_rms2;  // [rows]
  Buffer<float> gate_up;       // [rows, 2F]
  void ensure(const ModelConfig& config, int64_t rows);
  static int64_t bytes(const ModelConfig& config, int64_t rows);
};

// Buffers that live within one layer.
struct LayerScratch {
  Buffer<float> normed;  // [rows, H]
  Buffer<float> act;     // [rows, F]
  void ensure(const ModelConfig& config, int64_t rows);
};

// Elements of a page that holds all layers, and the stride of a layer in it.
int64_t kv_layer_floats(const ModelConfig& config);

class Network {
 public:
  using Element = float;
  using Activations = LayerActivations;
  using Scratch = LayerScratch;

  Network(ModelConfig config, ParameterTable table);

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  float* arena() { return arena_.data(); }
  const float* arena() const { return arena_.data(); }
  const float* at(int64_t offset) const { return arena_.data() + offset; }
  const ops::RopeTable& rope() const { return rope_; }

  // Elements of a page of one layer.
  int64_t kv_layer_elements() const { return kv_layer_floats(config_); }

  // Rebuilds the packed copies after the arena changed. Prepares RoPE for `positions` positions.
  void prepare(const cpu::Context& context, int64_t positions);
  void repack(const cpu::Context& context);

  // One layer: h_in [rows, H] -> h_out [rows, H]; both may be the same buffer, which may then also be
  // activations.h_mid's stand-in: pass h_mid = h_in = h_out in rollout (nothing is kept).
  // Errors (kStopped): a score is NaN or too large; names the layer.
  Status layer_forward(const cpu::Context& context, int64_t layer, const ForwardBatch& batch,
                       const float* h_in, float* h_mid, float* h_out, LayerActivations* activations,
                       LayerScratch* scratch) const;

  // Embedding and all layers; h [rows, H] is the residual stream before the final norm. Keeps nothing.
  Status forward(const cpu::Context& context, const ForwardBatch& batch, float* h,
                 LayerActivations* activations, LayerScratch* scratch) const;

  // Final norm of rows h [rows, H] -> y [rows, H] (inverse_rms may be null); vocabulary product y -> logits
  // [rows, V].
  void final_norm(const cpu::Context& context, const float* h, int64_t rows, float* y,
                  float* inverse_rms) const;
  void logits(const cpu::Context& context, const float* y, int64_t rows, float* out) const;

  // Bytes of the packed copies of a config.
  static int64_t packed_bytes(const cpu::Context& context, const ModelConfig& config);

 private:
  struct PackedLayer {
    ops::PackedMatrix qkv, o, gate_up, down;
  };
  ModelConfig config_;
  ParameterTable table_;
  Buffer<float> arena_;
  std::vector<PackedLayer> packed_;
  ops::PackedMatrix packed_head_;
  ops::RopeTable rope_;
};

}  // namespace lockstep::model
