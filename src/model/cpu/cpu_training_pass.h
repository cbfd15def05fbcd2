// SPDX-License-Identifier: Apache-2.0
// Forward and backward over one micro-batch of whole samples on the CPU. The forward is
// CpuNetwork::layer_forward, the same as in rollout. Which samples share a micro-batch changes no bit. Rows
// of padding are +0 in every operand of a gradient's chain.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cpu/cpu_gradient.h"
#include "model/cpu/cpu_network.h"
#include "model/model.h"

namespace lockstep::model {

template <class E>
class CpuTrainingPass {
 public:
  using Ops = CpuOps<E>;
  // recompute: keep only each layer's input and run the layer again in backward (less memory, same bits).
  CpuTrainingPass(const CpuNetwork<E>& network, bool recompute);

  // Residual stream before the final norm, [rows, H]; valid until the next forward.
  Result<const E*> forward(const cpu::Context& context, const MicroBatch& batch);
  // dh [rows, H]: gradient of what forward returned, +0 in padding; overwritten. Adds all parameters'
  // gradients except the final norm and the head to `image`. Call after forward of the same batch.
  Status backward(const cpu::Context& context, const MicroBatch& batch, const std::vector<LeafRows>& leaves,
                  E* dh, CpuGradient* image);

  // Bytes kept for `rows` rows at once.
  static int64_t bytes(const ModelConfig& config, int64_t rows, bool recompute);

 private:
  ForwardBatch<E> forward_batch(const MicroBatch& batch);
  void layer_backward(const cpu::Context& context, int64_t layer, const MicroBatch& batch,
                      const std::vector<LeafRows>& leaves, const E* h_in, LayerActivations<E>& a, E* dh,
                      CpuGradient* image);
  // dx [rows, k] = dy [rows, n] W of the matrix at `offset`.
  void input_gradient(const cpu::Context& context, const E* dy, int64_t offset, int64_t rows, int64_t n,
                      int64_t k, E* dx);
  LayerActivations<E>& activations(int64_t layer) {
    return activations_[recompute_ ? 0 : static_cast<size_t>(layer)];
  }

  const CpuNetwork<E>& network_;
  bool recompute_;
  std::vector<LayerActivations<E>> activations_;
  std::vector<Buffer<E>> h_in_;  // [layers + 1][rows, H]
  LayerScratch<E> scratch_;
  Buffer<E> pages_;  // one layer's keys and values
  std::vector<E*> page_pointers_;
  Buffer<E> d_act_;        // [rows, F]
  Buffer<E> d_gate_up_;    // [rows, 2F]
  Buffer<E> d_normed_;     // [rows, H]
  Buffer<E> d_attention_;  // [rows, heads*d]
  Buffer<E> d_qkv_;        // [rows, qkv]
};

}  // namespace lockstep::model
