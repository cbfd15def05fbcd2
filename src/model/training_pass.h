// SPDX-License-Identifier: Apache-2.0
// Forward and backward over one micro-batch of whole samples. The forward is Network::layer_forward, the same
// as in rollout. Which samples share a micro-batch changes no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "model/gradient.h"
#include "model/model.h"
#include "model/network.h"

namespace lockstep::model {

class TrainingPass {
 public:
  // recompute: keep only each layer's input and run the layer again in backward (less memory, same bits).
  TrainingPass(const Network& network, bool recompute);

  // Residual stream before the final norm, [rows, H]; valid until the next forward.
  Result<const float*> forward(const cpu::Context& context, const MicroBatch& batch);
  // dh [rows, H]: gradient of what forward returned; overwritten. Adds all parameters' gradients except the
  // final norm and the head to `image`. Call after forward of the same batch.
  Status backward(const cpu::Context& context, const MicroBatch& batch, const std::vector<LeafRows>& leaves,
                  float* dh, GradientImage* image);

  // Bytes kept for `rows` rows at once.
  static int64_t bytes(const ModelConfig& config, int64_t rows, bool recompute);

 private:
  ForwardBatch forward_batch(const MicroBatch& batch);
  void layer_backward(const cpu::Context& context, int64_t layer, const MicroBatch& batch,
                      const std::vector<LeafRows>& leaves, const float* h_in, LayerActivations& a, float* dh,
                      GradientImage* image);
  LayerActivations& activations(int64_t layer) {
    return activations_[recompute_ ? 0 : static_cast<size_t>(layer)];
  }

  const Network& network_;
  bool recompute_;
  std::vector<LayerActivations> activations_;
  std::vector<Buffer<float>> h_in_;  // [layers + 1][rows, H]
  LayerScratch scratch_;
  Buffer<float> pages_;  // one layer's keys and values
  std::vector<float*> page_pointers_;
  Buffer<float> d_act_;        // [rows, F]
  Buffer<float> d_gate_up_;    // [rows, 2F]
  Buffer<float> d_normed_;     // [rows, H]
  Buffer<float> d_attention_;  // [rows, heads*d]
  Buffer<float> d_qkv_;        // [rows, qkv]
};

}  // namespace lockstep::model
