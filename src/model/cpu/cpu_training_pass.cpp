// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/cpu_training_pass.h"

#include "numerics/constants.h"

namespace lockstep::model {
namespace {

int64_t blocks_of(int64_t rows) {
  return (rows + numerics::kKeyBlock - 1) / numerics::kKeyBlock;
}

}  // namespace

template <class E>
CpuTrainingPass<E>::CpuTrainingPass(const CpuNetwork<E>& network, bool recompute)
    : network_(network),
      recompute_(recompute),
      activations_(recompute ? 1 : static_cast<size_t>(network.config().layers)),
      h_in_(static_cast<size_t>(network.config().layers) + 1) {}

template <class E>
int64_t CpuTrainingPass<E>::bytes(const ModelConfig& config, int64_t rows, bool recompute) {
  constexpr int64_t kElement = sizeof(E);
  const int64_t kept = (recompute ? 1 : config.layers) * LayerActivations<E>::bytes(config, rows) +
                       (config.layers + 1) * rows * config.hidden * kElement;
  const int64_t gradients =
      rows * (config.hidden + 3 * config.intermediate + config.q_size() + config.qkv_size());
  const int64_t pages = (rows + numerics::kKeyBlock) * 2 * config.kv_size();
  return kept + LayerScratch<E>::bytes(config, rows) + (gradients + pages) * kElement;
}

template <class E>
ForwardBatch<E> CpuTrainingPass<E>::forward_batch(const MicroBatch& batch) {
  const int64_t page_elements = network_.kv_layer_elements();
  int64_t pages = 0;
  for (const ops::SampleRows& sample : batch.samples) pages += blocks_of(sample.end - sample.begin);
  pages_.ensure(pages * page_elements);
  pages_.fill_zero();
  page_pointers_.resize(static_cast<size_t>(pages));
  for (int64_t i = 0; i < pages; ++i)
    page_pointers_[static_cast<size_t>(i)] = pages_.data() + i * page_elements;

  ForwardBatch<E> out;
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

template <class E>
Result<const E*> CpuTrainingPass<E>::forward(const cpu::Context& context, const MicroBatch& batch) {
  const ModelConfig& config = network_.config();
  const int64_t rows = batch.rows();
  const ForwardBatch<E> forward = forward_batch(batch);
  scratch_.ensure(config, rows);
  for (Buffer<E>& buffer : h_in_) buffer.ensure(rows * config.hidden);
  network_.embed(context, forward, h_in_[0].data());
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerActivations<E>& a = activations(layer);
    a.ensure(config, rows);
    LOCKSTEP_RETURN_IF_ERROR(
        network_.layer_forward(context, layer, forward, h_in_[static_cast<size_t>(layer)].data(),
                               a.h_mid.data(), h_in_[static_cast<size_t>(layer) + 1].data(), &a, &scratch_));
  }
  const E* out = h_in_.back().data();
  return out;
}

template <class E>
void CpuTrainingPass<E>::input_gradient(const cpu::Context& context, const E* dy, int64_t offset,
                                        int64_t rows, int64_t n, int64_t k, E* dx) {
  Ops::input_gradient(context, dy, network_.at(offset), rows, n, k, scratch_.product.data(), dx);
}

template <class E>
void CpuTrainingPass<E>::layer_backward(const cpu::Context& context, int64_t layer, const MicroBatch& batch,
                                        const std::vector<LeafRows>& leaves, const E* h_in,
                                        LayerActivations<E>& a, E* dh, CpuGradient* image) {
  const ModelConfig& config = network_.config();
  const LayerOffsets& offsets = network_.table().layer(layer);
  const int64_t rows = batch.rows();
  const int64_t h = config.hidden;
  const int64_t f = config.intermediate;
  const int64_t q = config.q_size();
  const int64_t qkv = config.qkv_size();
  E* normed = scratch_.normed.data();
  E* act = scratch_.act.data();

  // MLP: h_out = h_mid + down(silu(gate) * up).
  Ops::swiglu(context, a.gate_up.data(), rows, f, act);
  image->add_matrix(context, offsets.down, dh, h, act, f, h, f, leaves);
  input_gradient(context, dh, offsets.down, rows, h, f, d_act_.data());
  Ops::swiglu_backward(context, d_act_.data(), a.gate_up.data(), rows, f, d_gate_up_.data());
  Ops::norm(context, a.h_mid.data(), network_.at(offsets.post_norm), config.rms_eps, rows, h, normed,
            nullptr);
  image->add_matrix(context, offsets.gate_up, d_gate_up_.data(), 2 * f, normed, h, 2 * f, h, leaves);
  input_gradient(context, d_gate_up_.data(), offsets.gate_up, rows, 2 * f, h, d_normed_.data());
  image->add_gain(context, offsets.post_norm, d_normed_.data(), a.h_mid.data(), a.inverse_rms2.data(), h,
                  batch.samples);
  Ops::norm_backward(context, d_normed_.data(), a.h_mid.data(), network_.at(offsets.post_norm),
                     a.inverse_rms2.data(), rows, h, dh);

  // Attention: h_mid = h_in + o(attention(q, k, v)).
  image->add_matrix(context, offsets.o, dh, h, a.attention.data(), q, h, q, leaves);
  input_gradient(context, dh, offsets.o, rows, h, q, d_attention_.data());
  std::vector<ops::AttentionSample> samples;
  std::vector<SequenceRun<E>> runs;
  for (const ops::SampleRows& sample : batch.samples) {
    samples.push_back({sample.begin, sample.end});
    runs.push_back({sample.begin, sample.end - sample.begin, 0, nullptr});
  }
  Ops::attention_backward(context, config, a.qkv.data(), a.attention.data(), d_attention_.data(),
                          a.max_exponent.data(), a.inverse_sum.data(), samples.data(),
                          static_cast<int64_t>(samples.size()), network_.rope(), batch.positions.data(), rows,
                          d_qkv_.data());
  clear_padding(runs, rows, qkv, d_qkv_.data());
  image->add_bias(context, offsets.qkv_bias, d_qkv_.data(), qkv, qkv, batch.samples);
  Ops::norm(context, h_in, network_.at(offsets.input_norm), config.rms_eps, rows, h, normed, nullptr);
  image->add_matrix(context, offsets.qkv, d_qkv_.data(), qkv, normed, h, qkv, h, leaves);
  input_gradient(context, d_qkv_.data(), offsets.qkv, rows, qkv, h, d_normed_.data());
  image->add_gain(context, offsets.input_norm, d_normed_.data(), h_in, a.inverse_rms1.data(), h,
                  batch.samples);
  Ops::norm_backward(context, d_normed_.data(), h_in, network_.at(offsets.input_norm), a.inverse_rms1.data(),
                     rows, h, dh);
}

template <class E>
Status CpuTrainingPass<E>::backward(const cpu::Context& context, const MicroBatch& batch,
                                    const std::vector<LeafRows>& leaves, E* dh, CpuGradient* image) {
  const ModelConfig& config = network_.config();
  const int64_t rows = batch.rows();
  d_act_.ensure(rows * config.intermediate);
  d_gate_up_.ensure(rows * 2 * config.intermediate);
  d_normed_.ensure(rows * config.hidden);
  d_attention_.ensure(rows * config.q_size());
  d_qkv_.ensure(rows * config.qkv_size());
  Buffer<E> recomputed;
  for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
    LayerActivations<E>& a = activations(layer);
    const E* h_in = h_in_[static_cast<size_t>(layer)].data();
    if (recompute_ && layer != config.layers - 1) {
      recomputed.ensure(rows * config.hidden);
      LOCKSTEP_RETURN_IF_ERROR(network_.layer_forward(context, layer, forward_batch(batch), h_in,
                                                      a.h_mid.data(), recomputed.data(), &a, &scratch_));
    }
    layer_backward(context, layer, batch, leaves, h_in, a, dh, image);
  }
  for (const ops::SampleRows& sample : batch.samples) {
    image->add_embedding(context, network_.table().embedding(), dh + sample.begin * config.hidden,
                         batch.ids.data() + sample.begin, sample.end - sample.begin, config.hidden);
  }
  return ok_status();
}

template class CpuTrainingPass<float>;
template class CpuTrainingPass<Bf16>;

}  // namespace lockstep::model
