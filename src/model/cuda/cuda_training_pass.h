// SPDX-License-Identifier: Apache-2.0
// Forward and backward over one micro-batch on the GPU. The text follows
// cpu/cpu_training_pass.h.
#pragma once

#include <algorithm>
#include <vector>

#include "model/cuda/cuda_gradient.h"
#include "model/cuda/cuda_network.h"
#include "model/model.h"

namespace lockstep::model {

// A micro-batch on the device.
struct DeviceBatch {
  DeviceRows rows;
  const ops::VectorPiece* pieces = nullptr;
  int64_t n_pieces = 0;
};

template <class E>
class CudaTrainingPass {
 public:
  using Ops = TensorOps<E>;
  CudaTrainingPass(const CudaNetwork<E>& network, bool recompute)
      : network_(network),
        device_(network.device()),
        recompute_(recompute),
        activations_(recompute ? 1 : static_cast<size_t>(network.config().layers)),
        h_in_(static_cast<size_t>(network.config().layers) + 1) {}

  // What forward, and with `backward` the backward pass, takes for micro-batches of up to `rows` rows.
  void reserve(int64_t rows, bool backward) {
    const ModelConfig& config = network_.config();
    const PassElements elements(config, rows);
    scratch_.ensure(config, rows);
    for (auto& buffer : h_in_) buffer.ensure(elements.hidden, "activations");
    for (auto& activations : activations_) activations.ensure(config, rows);
    if (!backward) return;
    d_act_.ensure(elements.d_act, "gradients of activations");
    d_gate_up_.ensure(elements.d_gate_up, "gradients of activations");
    d_normed_.ensure(elements.d_normed, "gradients of activations");
    d_attention_.ensure(elements.d_attention, "gradients of activations");
    d_qkv_.ensure(elements.d_qkv, "gradients of activations");
    if (recompute_) recomputed_.ensure(elements.hidden, "activations");
  }

  // Residual stream before the final norm, [rows, H]; valid until the next forward.
  const E* forward(const DeviceBatch& batch, unsigned long long* fault) {
    const ModelConfig& config = network_.config();
    const int64_t rows = batch.rows.rows;
    reserve(rows, false);
    Ops::embedding(device_, network_.at(network_.table().embedding()), batch.rows.ids, rows, config.hidden,
                   h_in_[0].data());
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      DeviceActivations<E>& a = activations(layer);
      network_.layer_forward(layer, batch.rows, nullptr, h_in_[static_cast<size_t>(layer)].data(),
                             a.h_mid.data(), h_in_[static_cast<size_t>(layer) + 1].data(), &a, &scratch_,
                             fault);
    }
    return h_in_.back().data();
  }

  // dh [rows, H]: gradient of what forward returned; overwritten.
  void backward(const DeviceBatch& batch, const DeviceLeaves& leaves, E* dh, CudaGradient* image,
                unsigned long long* fault) {
    const ModelConfig& config = network_.config();
    const int64_t rows = batch.rows.rows;
    reserve(rows, true);
    for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
      DeviceActivations<E>& a = activations(layer);
      const E* h_in = h_in_[static_cast<size_t>(layer)].data();
      if (recompute_ && layer != config.layers - 1)
        network_.layer_forward(layer, batch.rows, nullptr, h_in, a.h_mid.data(), recomputed_.data(), &a,
                               &scratch_, fault);
      layer_backward(layer, batch, leaves, h_in, a, dh, image);
    }
    image->add_embedding(network_.table().embedding(), dh, batch.rows.ids, rows, config.hidden);
  }

 private:
  DeviceActivations<E>& activations(int64_t layer) {
    return activations_[recompute_ ? 0 : static_cast<size_t>(layer)];
  }

  void layer_backward(int64_t layer, const DeviceBatch& batch, const DeviceLeaves& leaves, const E* h_in,
                      DeviceActivations<E>& a, E* dh, CudaGradient* image) {
    const ModelConfig& config = network_.config();
    const LayerOffsets& offsets = network_.table().layer(layer);
    const int64_t rows = batch.rows.rows;
    const int64_t h = config.hidden;
    const int64_t f = config.intermediate;
    const int64_t q = config.q_size();
    const int64_t qkv = config.qkv_size();
    E* normed = scratch_.normed.data();
    E* act = scratch_.act.data();
    const auto at = [&](int64_t offset) { return network_.at(offset); };

    // MLP: h_out = h_mid + down(silu(gate) * up). The activation is made again beside its gradient.
    Ops::input_gradient(device_, dh, h, at(offsets.down), rows, h, f, d_act_.data());
    Ops::swiglu_backward(device_, d_act_.data(), a.gate_up.data(), rows, f, d_gate_up_.data(), act);
    image->add_matrix(offsets.down, dh, h, act, rows, h, f, leaves);
    Ops::norm(device_, a.h_mid.data(), at(offsets.post_norm), config.rms_eps, rows, h, normed, nullptr);
    image->add_matrix(offsets.gate_up, d_gate_up_.data(), 2 * f, normed, rows, 2 * f, h, leaves);
    Ops::input_gradient(device_, d_gate_up_.data(), 2 * f, at(offsets.gate_up), rows, 2 * f, h,
                        d_normed_.data());
    image->add_gain(offsets.post_norm, d_normed_.data(), a.h_mid.data(), a.inverse_rms2.data(), h,
                    batch.pieces, batch.n_pieces);
    Ops::norm_backward(device_, d_normed_.data(), a.h_mid.data(), at(offsets.post_norm),
                       a.inverse_rms2.data(), rows, h, dh);

    // Attention: h_mid = h_in + o(attention(q, k, v)).
    image->add_matrix(offsets.o, dh, h, a.attention.data(), rows, h, q, leaves);
    Ops::input_gradient(device_, dh, h, at(offsets.o), rows, h, q, d_attention_.data());
    cuda::fill(device_, d_qkv_.data(), 0, rows * qkv * static_cast<int64_t>(sizeof(E)));
    Ops::attention_backward(device_, config, a.qkv.data(), a.attention.data(), d_attention_.data(),
                            a.max_exponent.data(), a.inverse_sum.data(), batch.rows, network_.rope(),
                            d_qkv_.data());
    image->add_bias(offsets.qkv_bias, d_qkv_.data(), qkv, qkv, batch.pieces, batch.n_pieces);
    Ops::norm(device_, h_in, at(offsets.input_norm), config.rms_eps, rows, h, normed, nullptr);
    image->add_matrix(offsets.qkv, d_qkv_.data(), qkv, normed, rows, qkv, h, leaves);
    Ops::input_gradient(device_, d_qkv_.data(), qkv, at(offsets.qkv), rows, qkv, h, d_normed_.data());
    image->add_gain(offsets.input_norm, d_normed_.data(), h_in, a.inverse_rms1.data(), h, batch.pieces,
                    batch.n_pieces);
    Ops::norm_backward(device_, d_normed_.data(), h_in, at(offsets.input_norm), a.inverse_rms1.data(), rows,
                       h, dh);
  }

  const CudaNetwork<E>& network_;
  const cuda::Context& device_;
  bool recompute_;
  std::vector<DeviceActivations<E>> activations_;
  std::vector<cuda::DeviceBuffer<E>> h_in_;  // [layers + 1][rows, H]
  DeviceScratch<E> scratch_;
  cuda::DeviceBuffer<E> d_act_, d_gate_up_, d_normed_, d_attention_, d_qkv_, recomputed_;
};

}  // namespace lockstep::model
