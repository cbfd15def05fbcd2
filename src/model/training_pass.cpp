// SPDX-License-Identifier: Apache-2.0
#include "model/training_pass.h"

#include <algorithm>

#include "numerics/constants.h"
#include "ops/attention/attention.h"
#include "ops/embedding/embedding.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"

namespace lockstep::model {
namespace {

int64_t blocks_of(int64_t rows) {
  return (rows + numerics::kKeyBlock - 1) / numerics::kKeyBlock;
}

}  // namespace

TrainingPass::TrainingPass(const Network& network, bool recompute)
    : network_(network),
      recompute_(recompute),
      activations_(recompute ? 1 : static_cast<size_t>(network.config().layers)),
      h_in_(static_cast<size_t>(network.config().layers) + 1) {}

int64_t TrainingPass::bytes(const ModelConfig& config, int64_t rows, bool recompute) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t kept = (recompute ? 1 : config.layers) * LayerActivations::bytes(config, rows) +
                       (config.layers + 1) * rows * config.hidden * kFloat;
  const int64_t scratch =
      rows * (2 * config.hidden + 4 * config.intermediate + config.q_size() + config.qkv_size());
  const int64_t pages = (rows + numerics::kKeyBlock) * 2 * config.kv_size();
  return kept + (scratch + pages) * kFloat;
}

ForwardBatch TrainingPass::forward_batch(const MicroBatch& batch) {
  const int64_t page_floats = kv_layer_floats(network_.config());
  int64_t pages = 0;
  for (const ops::SampleRows& sample : batch.samples) pages += blocks_of(sample.end - sample.begin);
  pages_.ensure(pages * page_floats);
  pages_.fill_zero();
  page_pointers_.resize(static_cast<size_t>(pages));
  for (int64_t i = 0; i < pages; ++i)
    page_pointers_[static_cast<size_t>(i)] = pages_.data() + i * page_floats;

  ForwardBatch out;
  out.rows = batch.rows();
  out.ids = batch.ids.data();
  out.positions = batch.positions.data();
  out.layer_stride = 0;
  int64_t page = 0;
  for (const ops::SampleRows& sample : batch.samples) {
    const int64_t rows = sample.end - sample.begin;
    out.runs.push_back({sample.begin, rows, 0, page_pointers_.data() + page});
    page += blocks_of(rows);
  }
  return out;
}

Result<const float*> TrainingPass::forward(const cpu::Context& context, const MicroBatch& batch) {
  const ModelConfig& config = network_.config();
  const int64_t rows = batch.rows();
  const ForwardBatch forward = forward_batch(batch);
  scratch_.ensure(config, rows);
  for (Buffer<float>& buffer : h_in_) buffer.ensure(rows * config.hidden);
  ops::embedding_forward_cpu(context, network_.at(network_.table().embedding()), batch.ids.data(), rows,
                             config.hidden, h_in_[0].data());
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerActivations& a = activations(layer);
    a.ensure(config, rows);
    LOCKSTEP_RETURN_IF_ERROR(
        network_.layer_forward(context, layer, forward, h_in_[static_cast<size_t>(layer)].data(),
                               a.h_mid.data(), h_in_[static_cast<size_t>(layer) + 1].data(), &a, &scratch_));
  }
  const float* out = h_in_.back().data();
  return out;
}

void TrainingPass::layer_backward(const cpu::Context& context, int64_t layer, const MicroBatch& batch,
                                  const std::vector<LeafRows>& leaves, const float* h_in, LayerActivations& a,
                                  float* dh, GradientImage* image) {
  const ModelConfig& config = network_.config();
  const LayerOffsets& offsets = network_.table().layer(layer);
  const int64_t rows = batch.rows();
  const int64_t h = config.hidden;
  const int64_t f = config.intermediate;
  const int64_t q = config.q_size();
  const int64_t qkv = config.qkv_size();
  float* normed = scratch_.normed.data();
  float* act = scratch_.act.data();

  // MLP: h_out = h_mid + down(silu(gate) * up).
  ops::swiglu_forward_cpu(context, a.gate_up.data(), rows, f, act);
  image->add_matrix(context, offsets.down, dh, h, act, f, h, f, leaves);
  ops::matmul_input_gradient_cpu(context, dh, h, network_.at(offsets.down), rows, h, f, d_act_.data(), f);
  ops::swiglu_backward_cpu(context, d_act_.data(), a.gate_up.data(), rows, f, d_gate_up_.data());
  ops::rms_norm_forward_cpu(context, a.h_mid.data(), network_.at(offsets.post_norm), config.rms_eps, rows, h,
                            normed, nullptr);
  image->add_matrix(context, offsets.gate_up, d_gate_up_.data(), 2 * f, normed, h, 2 * f, h, leaves);
  ops::matmul_input_gradient_cpu(context, d_gate_up_.data(), 2 * f, network_.at(offsets.gate_up), rows, 2 * f,
                                 h, d_normed_.data(), h);
  image->add_gain(context, offsets.post_norm, d_normed_.data(), a.h_mid.data(), a.inverse_rms2.data(), h,
                  batch.samples);
  ops::rms_norm_backward_cpu(context, d_normed_.data(), a.h_mid.data(), network_.at(offsets.post_norm),
                             a.inverse_rms2.data(), rows, h, dh);

  // Attention: h_mid = h_in + o(attention(q, k, v)).
  image->add_matrix(context, offsets.o, dh, h, a.attention.data(), q, h, q, leaves);
  ops::matmul_input_gradient_cpu(context, dh, h, network_.at(offsets.o), rows, h, q, d_attention_.data(), q);
  std::vector<ops::AttentionSample> samples;
  for (const ops::SampleRows& sample : batch.samples) samples.push_back({sample.begin, sample.end});
  ops::attention_backward_cpu(context, config.attention_shape(), a.qkv.data(), a.attention.data(),
                              d_attention_.data(), a.max_exponent.data(), a.inverse_sum.data(),
                              samples.data(), static_cast<int64_t>(samples.size()), d_qkv_.data());
  ops::rope_cpu(context, network_.rope(), batch.positions.data(), rows, config.heads + config.kv_heads, true,
                d_qkv_.data(), qkv);
  image->add_bias(context, offsets.qkv_bias, d_qkv_.data(), qkv, qkv, batch.samples);
  ops::rms_norm_forward_cpu(context, h_in, network_.at(offsets.input_norm), config.rms_eps, rows, h, normed,
                            nullptr);
  image->add_matrix(context, offsets.qkv, d_qkv_.data(), qkv, normed, h, qkv, h, leaves);
  ops::matmul_input_gradient_cpu(context, d_qkv_.data(), qkv, network_.at(offsets.qkv), rows, qkv, h,
                                 d_normed_.data(), h);
  image->add_gain(context, offsets.input_norm, d_normed_.data(), h_in, a.inverse_rms1.data(), h,
                  batch.samples);
  ops::rms_norm_backward_cpu(context, d_normed_.data(), h_in, network_.at(offsets.input_norm),
                             a.inverse_rms1.data(), rows, h, dh);
}

Status TrainingPass::backward(const cpu::Context& context, const MicroBatch& batch,
                              const std::vector<LeafRows>& leaves, float* dh, GradientImage* image) {
  const ModelConfig& config = network_.config();
  const int64_t rows = batch.rows();
  d_act_.ensure(rows * config.intermediate);
  d_gate_up_.ensure(rows * 2 * config.intermediate);
  d_normed_.ensure(rows * config.hidden);
  d_attention_.ensure(rows * config.q_size());
  d_qkv_.ensure(rows * config.qkv_size());
  Buffer<float> recomputed;
  for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
    LayerActivations& a = activations(layer);
    const float* h_in = h_in_[static_cast<size_t>(layer)].data();
    if (recompute_ && layer != config.layers - 1) {
      recomputed.ensure(rows * config.hidden);
      LOCKSTEP_RETURN_IF_ERROR(network_.layer_forward(context, layer, forward_batch(batch), h_in,
                                                      a.h_mid.data(), recomputed.data(), &a, &scratch_));
    }
    layer_backward(context, layer, batch, leaves, h_in, a, dh, image);
  }
  image->add_embedding(context, network_.table().embedding(), dh, batch.ids.data(), rows, config.hidden);
  return ok_status();
}

}  // namespace lockstep::model
