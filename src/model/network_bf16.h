// SPDX-License-Identifier: Apache-2.0
// Profile bf16 on the CPU: weights in bfloat16 and the one forward definition (docs/numerics.md, Profile
// bf16). The text follows network.h; masters are kept by the model.
#pragma once

#include <cstdint>
#include <vector>

#include "model/network.h"
#include "numerics/bfloat16.h"
#include "ops/matmul/matmul_bf16_cpu.h"

namespace lockstep::model {

using numerics::Bf16;

// What a layer's backward pass needs; all row-major.
struct LayerActivationsBf16 {
  Buffer<float> inverse_rms1;  // [rows]
  Buffer<Bf16> qkv;            // [rows, qkv_size] after bias and RoPE
  Buffer<float> max_exponent;  // [rows, heads]
  Buffer<float> inverse_sum;   // [rows, heads]
  Buffer<Bf16> attention;      // [rows, heads*d]; +0 in rows of padding
  Buffer<Bf16> h_mid;          // [rows, H]
  Buffer<float> inverse_rms2;  // [rows]
  Buffer<Bf16> gate_up;        // [rows, 2F]
  void ensure(const ModelConfig& config, int64_t rows);
  static int64_t bytes(const ModelConfig& config, int64_t rows);
};

struct LayerScratchBf16 {
  Buffer<Bf16> normed;    // [rows, H]
  Buffer<Bf16> act;       // [rows, F]
  Buffer<float> product;  // [rows, widest product but the vocabulary's]
  void ensure(const ModelConfig& config, int64_t rows);
  static int64_t bytes(const ModelConfig& config, int64_t rows);
};

// +0 in the rows of [rows, width] that belong to no run: the padding between samples.
void clear_padding(const std::vector<SequenceRunOf<Bf16>>& runs, int64_t rows, int64_t width, Bf16* x);

class NetworkBf16 {
 public:
  using Element = Bf16;
  using Activations = LayerActivationsBf16;
  using Scratch = LayerScratchBf16;

  NetworkBf16(const ModelConfig& config, const ParameterTable& table);

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  Bf16* arena() { return arena_.data(); }
  const Bf16* arena() const { return arena_.data(); }
  const Bf16* at(int64_t offset) const { return arena_.data() + offset; }
  const ops::RopeTable& rope() const { return rope_; }
  int64_t kv_layer_elements() const;

  // As Network's. The weights are made from masters by the caller.
  void prepare(const cpu::Context& context, int64_t positions);
  void repack(const cpu::Context& context);

  Status layer_forward(const cpu::Context& context, int64_t layer, const ForwardBatchOf<Bf16>& batch,
                       const Bf16* h_in, Bf16* h_mid, Bf16* h_out, LayerActivationsBf16* activations,
                       LayerScratchBf16* scratch) const;
  // Rows of the embedding matrix; +0 in padding.
  void embed(const cpu::Context& context, const ForwardBatchOf<Bf16>& batch, Bf16* h) const;
  Status forward(const cpu::Context& context, const ForwardBatchOf<Bf16>& batch, Bf16* h,
                 LayerActivationsBf16* activations, LayerScratchBf16* scratch) const;
  void final_norm(const cpu::Context& context, const Bf16* h, int64_t rows, Bf16* y,
                  float* inverse_rms) const;
  void logits(const cpu::Context& context, const Bf16* y, int64_t rows, float* out) const;

  static int64_t packed_bytes(const ModelConfig& config);

 private:
  struct PackedLayer {
    ops::PackedMatrixBf16 qkv, o, gate_up, down;
  };
  const ModelConfig& config_;
  const ParameterTable& table_;
  Buffer<Bf16> arena_;
  std::vector<PackedLayer> packed_;
  ops::PackedMatrixBf16 packed_head_;
  ops::RopeTable rope_;
};

}  // namespace lockstep::model
