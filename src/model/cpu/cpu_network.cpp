// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/cpu_network.h"

#include <algorithm>
#include <cstring>

#include "numerics/constants.h"

namespace lockstep::model {
namespace {

// Pointers to one layer's K and V blocks of every run.
template <class E>
struct LayerBlocks {
  std::vector<E*> k, v;                                     // blocks of all runs, in order
  std::vector<size_t> starts;                               // of each run, in k and v
  std::vector<typename CpuOps<E>::AttentionRun> attention;  // point into k and v
};

template <class E>
LayerBlocks<E> layer_blocks(const ForwardBatch<E>& batch, int64_t layer, int64_t block_elements) {
  LayerBlocks<E> out;
  for (const SequenceRun<E>& run : batch.runs) {
    out.starts.push_back(out.k.size());
    const int64_t blocks = (run.first_position + run.rows + numerics::kKeyBlock - 1) / numerics::kKeyBlock;
    for (int64_t b = 0; b < blocks; ++b) {
      E* base = run.pages[b] + layer * batch.layer_stride;
      out.k.push_back(base);
      out.v.push_back(base + block_elements);
    }
  }
  for (size_t i = 0; i < batch.runs.size(); ++i) {
    const SequenceRun<E>& run = batch.runs[i];
    out.attention.push_back({run.first_row, run.rows, run.first_position, out.k.data() + out.starts[i],
                             out.v.data() + out.starts[i]});
  }
  return out;
}

template <class E>
int64_t product_width(const ModelConfig& config) {
  if (!CpuOps<E>::kRounds) return 0;
  return std::max({config.qkv_size(), 2 * config.intermediate, config.hidden, config.q_size()});
}

}  // namespace

template <class E>
void LayerActivations<E>::ensure(const ModelConfig& config, int64_t rows) {
  inverse_rms1.ensure(rows);
  qkv.ensure(rows * config.qkv_size());
  max_exponent.ensure(rows * config.heads);
  inverse_sum.ensure(rows * config.heads);
  attention.ensure(rows * config.q_size());
  h_mid.ensure(rows * config.hidden);
  inverse_rms2.ensure(rows);
  gate_up.ensure(rows * 2 * config.intermediate);
}

template <class E>
int64_t LayerActivations<E>::bytes(const ModelConfig& config, int64_t rows) {
  const int64_t floats = 2 + 2 * config.heads;
  const int64_t elements = config.qkv_size() + config.q_size() + config.hidden + 2 * config.intermediate;
  return rows * (floats * static_cast<int64_t>(sizeof(float)) + elements * static_cast<int64_t>(sizeof(E)));
}

template <class E>
void LayerScratch<E>::ensure(const ModelConfig& config, int64_t rows) {
  normed.ensure(rows * config.hidden);
  act.ensure(rows * config.intermediate);
  product.ensure(rows * product_width<E>(config));
}

template <class E>
int64_t LayerScratch<E>::bytes(const ModelConfig& config, int64_t rows) {
  return rows * ((config.hidden + config.intermediate) * static_cast<int64_t>(sizeof(E)) +
                 product_width<E>(config) * static_cast<int64_t>(sizeof(float)));
}

template <class E>
void clear_padding(const std::vector<SequenceRun<E>>& runs, int64_t rows, int64_t width, E* x) {
  int64_t row = 0;
  for (size_t i = 0; i <= runs.size(); ++i) {
    const int64_t end = i < runs.size() ? runs[i].first_row : rows;
    if (end > row) std::memset(x + row * width, 0, static_cast<size_t>((end - row) * width) * sizeof(E));
    if (i < runs.size()) row = runs[i].first_row + runs[i].rows;
  }
}

template <class E>
CpuNetwork<E>::CpuNetwork(const ModelConfig& config, const ParameterTable& table)
    : config_(config),
      table_(table),
      arena_(Buffer<E>::zeros(table.arena_size())),
      packed_(static_cast<size_t>(config.layers)) {}

template <class E>
int64_t CpuNetwork<E>::kv_layer_elements(const ModelConfig& config) {
  return 2 * Ops::kv_block_elements(config.attention_shape());
}

template <class E>
void CpuNetwork<E>::prepare(const cpu::Context& context, int64_t positions) {
  if (positions > rope_.positions)
    rope_ = ops::make_rope_table(context, config_.rope_base, config_.head_size, positions);
  repack(context);
}

template <class E>
void CpuNetwork<E>::repack(const cpu::Context& context) {
  const int64_t h = config_.hidden;
  for (int64_t i = 0; i < config_.layers; ++i) {
    const LayerOffsets& layer = table_.layer(i);
    PackedLayer& packed = packed_[static_cast<size_t>(i)];
    packed.qkv.pack(context, at(layer.qkv), config_.qkv_size(), h);
    packed.o.pack(context, at(layer.o), h, config_.q_size());
    packed.gate_up.pack(context, at(layer.gate_up), 2 * config_.intermediate, h);
    packed.down.pack(context, at(layer.down), h, config_.intermediate);
  }
  packed_head_.pack(context, at(table_.head()), config_.vocab, h);
}

template <class E>
int64_t CpuNetwork<E>::packed_bytes(const cpu::Context& context, const ModelConfig& config) {
  const int64_t h = config.hidden;
  const int64_t layer = Ops::packed_bytes(context, config.qkv_size(), h) +
                        Ops::packed_bytes(context, h, config.q_size()) +
                        Ops::packed_bytes(context, 2 * config.intermediate, h) +
                        Ops::packed_bytes(context, h, config.intermediate);
  return config.layers * layer + Ops::packed_bytes(context, config.vocab, h);
}

template <class E>
Status CpuNetwork<E>::layer_forward(const cpu::Context& context, int64_t layer, const ForwardBatch<E>& batch,
                                    const E* h_in, E* h_mid, E* h_out, LayerActivations<E>* a,
                                    LayerScratch<E>* scratch) const {
  const LayerOffsets& offsets = table_.layer(layer);
  const PackedLayer& packed = packed_[static_cast<size_t>(layer)];
  const ops::AttentionShape shape = config_.attention_shape();
  const int64_t rows = batch.rows;
  const int64_t h = config_.hidden;
  const int64_t qkv = config_.qkv_size();
  const int64_t q = config_.q_size();
  E* normed = scratch->normed.data();
  float* product = scratch->product.data();

  Ops::norm(context, h_in, at(offsets.input_norm), config_.rms_eps, rows, h, normed, a->inverse_rms1.data());
  Ops::qkv(context, config_, normed, packed.qkv, at(offsets.qkv_bias), rope_, batch.positions, rows, product,
           a->qkv.data());

  const LayerBlocks<E> blocks = layer_blocks(batch, layer, Ops::kv_block_elements(shape));
  context.parallel_for(static_cast<int64_t>(batch.runs.size()), [&](int64_t i) {
    const SequenceRun<E>& run = batch.runs[static_cast<size_t>(i)];
    const size_t start = blocks.starts[static_cast<size_t>(i)];
    const E* row = a->qkv.data() + run.first_row * qkv;
    Ops::write_kv(shape, row + q, row + q + config_.kv_size(), qkv, run.rows, run.first_position,
                  blocks.k.data() + start, blocks.v.data() + start);
  });
  if (!Ops::attention(context, config_, a->qkv.data(), blocks.attention.data(),
                      static_cast<int64_t>(blocks.attention.size()), a->attention.data(),
                      a->max_exponent.data(), a->inverse_sum.data())) {
    return stopped("layer {}: an attention score is NaN or at least 2^21; the weights have diverged", layer);
  }
  clear_padding(batch.runs, rows, q, a->attention.data());
  Ops::add_product(context, a->attention.data(), packed.o, rows, h_in, product, h_mid);

  Ops::norm(context, h_mid, at(offsets.post_norm), config_.rms_eps, rows, h, normed, a->inverse_rms2.data());
  Ops::gate_up(context, normed, packed.gate_up, rows, config_.intermediate, product, a->gate_up.data(),
               scratch->act.data());
  Ops::add_product(context, scratch->act.data(), packed.down, rows, h_mid, product, h_out);
  return ok_status();
}

template <class E>
void CpuNetwork<E>::embed(const cpu::Context& context, const ForwardBatch<E>& batch, E* h) const {
  Ops::embedding(context, at(table_.embedding()), batch.ids, batch.rows, config_.hidden, h);
  clear_padding(batch.runs, batch.rows, config_.hidden, h);
}

template <class E>
Status CpuNetwork<E>::forward(const cpu::Context& context, const ForwardBatch<E>& batch, E* h,
                              LayerActivations<E>* activations, LayerScratch<E>* scratch) const {
  activations->ensure(config_, batch.rows);
  scratch->ensure(config_, batch.rows);
  embed(context, batch, h);
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    LOCKSTEP_RETURN_IF_ERROR(layer_forward(context, layer, batch, h, h, h, activations, scratch));
  }
  return ok_status();
}

template <class E>
void CpuNetwork<E>::final_norm(const cpu::Context& context, const E* h, int64_t rows, E* y,
                               float* inverse_rms) const {
  Ops::norm(context, h, at(table_.final_norm()), config_.rms_eps, rows, config_.hidden, y, inverse_rms);
}

template <class E>
void CpuNetwork<E>::logits(const cpu::Context& context, const E* y, int64_t rows, float* out) const {
  Ops::product(context, y, packed_head_, rows, out);
}

template struct LayerActivations<float>;
template struct LayerActivations<Bf16>;
template struct LayerScratch<float>;
template struct LayerScratch<Bf16>;
template void clear_padding(const std::vector<SequenceRun<float>>&, int64_t, int64_t, float*);
template void clear_padding(const std::vector<SequenceRun<Bf16>>&, int64_t, int64_t, Bf16*);
template class CpuNetwork<float>;
template class CpuNetwork<Bf16>;

}  // namespace lockstep::model
