// SPDX-License-Identifier: Apache-2.0
// The weights of one model on the CPU and its one forward definition, used by rollout and trainer alike.
// E: float (profile fp32) or Bf16.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "device/cpu/context.h"
#include "model/config.h"
#include "model/cpu/cpu_ops.h"
#include "model/parameters.h"

namespace lockstep::model {

// Rows [first_row, first_row + rows) of a batch are consecutive positions of one sequence. pages[i] holds
// keys and values of positions [64 i, 64 i + 64) of all layers: layer l's K block at pages[i] +
// l*layer_stride, its V block one block behind. layer_stride 0: one layer at a time shares the page
// (training).
template <class E>
struct SequenceRun {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  E* const* pages = nullptr;  // [ceil((first_position + rows)/64)]
};

template <class E>
struct ForwardBatch {
  int64_t rows = 0;
  const int32_t* ids = nullptr;        // [rows]
  const int32_t* positions = nullptr;  // [rows], each < max_positions
  std::vector<SequenceRun<E>> runs;    // ascending; cover all rows but the padding between samples
  int64_t layer_stride = 0;            // elements
};

// What a layer's backward pass needs; all row-major.
template <class E>
struct LayerActivations {
  Buffer<float> inverse_rms1;  // [rows]
  Buffer<E> qkv;               // [rows, qkv_size] after bias and RoPE
  Buffer<float> max_exponent;  // [rows, heads]
  Buffer<float> inverse_sum;   // [rows, heads]
  Buffer<E> attention;         // [rows, heads*d]; +0 in rows of padding
  Buffer<E> h_mid;             // [rows, H] residual stream after attention
  Buffer<float> inverse_rms2;  // [rows]
  Buffer<E> gate_up;           // [rows, 2F]
  void ensure(const ModelConfig& config, int64_t rows);
  static int64_t bytes(const ModelConfig& config, int64_t rows);
};

// Buffers that live within one layer.
template <class E>
struct LayerScratch {
  Buffer<E> normed;       // [rows, H]
  Buffer<E> act;          // [rows, F]
  Buffer<float> product;  // [rows, widest product but the vocabulary's] where E rounds; else empty
  void ensure(const ModelConfig& config, int64_t rows);
  static int64_t bytes(const ModelConfig& config, int64_t rows);
};

// +0 in the rows of [rows, width] that belong to no run.
template <class E>
void clear_padding(const std::vector<SequenceRun<E>>& runs, int64_t rows, int64_t width, E* x);

template <class E>
class CpuNetwork {
 public:
  using Ops = CpuOps<E>;
  // The weights are +0. config and table outlive the network.
  CpuNetwork(const ModelConfig& config, const ParameterTable& table);

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  E* arena() { return arena_.data(); }
  const E* arena() const { return arena_.data(); }
  const E* at(int64_t offset) const { return arena_.data() + offset; }
  const ops::RopeTable& rope() const { return rope_; }

  // Elements of a page of one layer.
  int64_t kv_layer_elements() const { return kv_layer_elements(config_); }
  static int64_t kv_layer_elements(const ModelConfig& config);

  // Rebuilds the packed copies after the arena changed. Prepares RoPE for `positions` positions.
  void prepare(const cpu::Context& context, int64_t positions);
  void repack(const cpu::Context& context);

  // One layer: h_in [rows, H] -> h_out [rows, H]; both may be the same buffer, which may then also be
  // activations.h_mid's stand-in: pass h_mid = h_in = h_out in rollout (nothing is kept).
  // Errors (kStopped): a score is NaN or too large; names the layer.
  Status layer_forward(const cpu::Context& context, int64_t layer, const ForwardBatch<E>& batch,
                       const E* h_in, E* h_mid, E* h_out, LayerActivations<E>* activations,
                       LayerScratch<E>* scratch) const;

  // Rows of the embedding matrix; +0 in padding.
  void embed(const cpu::Context& context, const ForwardBatch<E>& batch, E* h) const;
  // Embedding and all layers; h [rows, H] is the residual stream before the final norm. Keeps nothing.
  Status forward(const cpu::Context& context, const ForwardBatch<E>& batch, E* h,
                 LayerActivations<E>* activations, LayerScratch<E>* scratch) const;

  // Final norm of rows h [rows, H] -> y [rows, H] (inverse_rms may be null); vocabulary product y -> logits
  // [rows, V].
  void final_norm(const cpu::Context& context, const E* h, int64_t rows, E* y, float* inverse_rms) const;
  void logits(const cpu::Context& context, const E* y, int64_t rows, float* out) const;

  // Bytes of the packed copies of a config.
  static int64_t packed_bytes(const cpu::Context& context, const ModelConfig& config);

 private:
  struct PackedLayer {
    typename Ops::Packed qkv, o, gate_up, down;
  };
  const ModelConfig& config_;
  const ParameterTable& table_;
  Buffer<E> arena_;
  std::vector<PackedLayer> packed_;
  typename Ops::Packed packed_head_;
  ops::RopeTable rope_;
};

}  // namespace lockstep::model
