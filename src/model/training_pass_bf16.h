// SPDX-License-Identifier: Apache-2.0
// Forward and backward over one micro-batch in profile bf16 on the CPU; the text follows training_pass.h.
// Rows of padding are +0 in every operand of a gradient's chain.
#pragma once

#include <cstdint>
#include <vector>

#include "model/gradient.h"
#include "model/model.h"
#include "model/network_bf16.h"

namespace lockstep::model {

class TrainingPassBf16 {
 public:
  // recompute: keep only each layer's input and run the layer again in backward (less memory, same bits).
  TrainingPassBf16(const NetworkBf16& network, bool recompute);

  // Residual stream before the final norm, [rows, H]; valid until the next forward.
  Result<const Bf16*> forward(const cpu::Context& context, const MicroBatch& batch);
  // dh [rows, H]: gradient of what forward returned, +0 in padding; overwritten. Adds all parameters'
  // gradients except the final norm and the head to `image`. Call after forward of the same batch.
  Status backward(const cpu::Context& context, const MicroBatch& batch, const std::vector<LeafRows>& leaves,
                  Bf16* dh, GradientImage* image);

  static int64_t bytes(const ModelConfig& config, int64_t rows, bool recompute);

 private:
  ForwardBatchOf<Bf16> forward_batch(const MicroBatch& batch);
  // out [rows, k] = bf16(dy [rows, n] W).
  void input_gradient(const cpu::Context& context, const Bf16* dy, int64_t offset, int64_t rows, int64_t n,
                      int64_t k, Bf16* out);
  void layer_backward(const cpu::Context& context, int64_t layer, const MicroBatch& batch,
                      const std::vector<LeafRows>& leaves, const Bf16* h_in, LayerActivationsBf16& a,
                      Bf16* dh, GradientImage* image);
  LayerActivationsBf16& activations(int64_t layer) {
    return activations_[recompute_ ? 0 : static_cast<size_t>(layer)];
  }

  const NetworkBf16& network_;
  bool recompute_;
  std::vector<LayerActivationsBf16> activations_;
  std::vector<Buffer<Bf16>> h_in_;  // [layers + 1][rows, H]
  LayerScratchBf16 scratch_;
  Buffer<Bf16> pages_;  // one layer's keys and values
  std::vector<Bf16*> page_pointers_;
  Buffer<Bf16> d_act_;        // [rows, F]
  Buffer<Bf16> d_gate_up_;    // [rows, 2F]
  Buffer<Bf16> d_normed_;     // [rows, H]
  Buffer<Bf16> d_attention_;  // [rows, heads*d]
  Buffer<Bf16> d_qkv_;        // [rows, qkv]
};

}  // namespace lockstep::model
