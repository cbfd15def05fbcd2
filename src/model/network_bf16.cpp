// SPDX-License-Identifier: Apache-2.0
#include "model/network_bf16.h"

#include <algorithm>
#include <cstring>

#include "numerics/constants.h"
#include "ops/attention/attention_bf16_cpu.h"
#include "ops/embedding/embedding_bf16_cpu.h"
#include "ops/rms_norm/rms_norm_bf16_cpu.h"

namespace lockstep::model {
namespace {

// Pointers to one layer's K and V blocks of every run.
struct LayerBlocks {
  std::vector<Bf16*> k, v;                       // blocks of all runs, in order
  std::vector<size_t> starts;                    // of each run, in k and v
  std::vector<ops::AttentionRunBf16> attention;  // point into k and v
};

LayerBlocks layer_blocks(const ForwardBatchOf<Bf16>& batch, int64_t layer, int64_t block_elements) {
  LayerBlocks out;
  for (const auto& run : batch.runs) {
    out.starts.push_back(out.k.size());
    const int64_t blocks = (run.first_position + run.rows + numerics::kKeyBlock - 1) / numerics::kKeyBlock;
    for (int64_t b = 0; b < blocks; ++b) {
      Bf16* base = run.pages[b] + layer * batch.layer_stride;
      out.k.push_back(base);
      out.v.push_back(base + block_elements);
    }
  }
  for (size_t i = 0; i < batch.runs.size(); ++i) {
    const auto& run = batch.runs[i];
    out.attention.push_back({run.first_row, run.rows, run.first_position, out.k.data() + out.starts[i],
                             out.v.data() + out.starts[i]});
  }
  return out;
}

int64_t widest(const ModelConfig& config) {
  return std::max({config.qkv_size(), 2 * config.intermediate, config.hidden, config.q_size()});
}

}  // namespace

void LayerActivationsBf16::ensure(const ModelConfig& config, int64_t rows) {
  inverse_rms1.ensure(rows);
  qkv.ensure(rows * config.qkv_size());
  max_exponent.ensure(rows * config.heads);
  inverse_sum.ensure(rows * config.heads);
  attention.ensure(rows * config.q_size());
  h_mid.ensure(rows * config.hidden);
  inverse_rms2.ensure(rows);
  gate_up.ensure(rows * 2 * config.intermediate);
}

int64_t LayerActivationsBf16::bytes(const ModelConfig& config, int64_t rows) {
  constexpr int64_t kFloat = sizeof(float);
  constexpr int64_t kHalf = sizeof(Bf16);
  return rows * ((2 + 2 * config.heads) * kFloat +
                 (config.qkv_size() + config.q_size() + config.hidden + 2 * config.intermediate) * kHalf);
}

void LayerScratchBf16::ensure(const ModelConfig& config, int64_t rows) {
  normed.ensure(rows * config.hidden);
  act.ensure(rows * config.intermediate);
  product.ensure(rows * widest(config));
}

int64_t LayerScratchBf16::bytes(const ModelConfig& config, int64_t rows) {
  return rows * ((config.hidden + config.intermediate) * static_cast<int64_t>(sizeof(Bf16)) +
                 widest(config) * static_cast<int64_t>(sizeof(float)));
}

void clear_padding(const std::vector<SequenceRunOf<Bf16>>& runs, int64_t rows, int64_t width, Bf16* x) {
  int64_t row = 0;
  for (size_t i = 0; i <= runs.size(); ++i) {
    const int64_t end = i < runs.size() ? runs[i].first_row : rows;
    if (end > row) std::memset(x + row * width, 0, static_cast<size_t>((end - row) * width) * sizeof(Bf16));
    if (i < runs.size()) row = runs[i].first_row + runs[i].rows;
  }
}

NetworkBf16::NetworkBf16(const ModelConfig& config, const ParameterTable& table)
    : config_(config),
      table_(table),
      arena_(Buffer<Bf16>::zeros(table.arena_size())),
      packed_(static_cast<size_t>(config.layers)) {}

int64_t NetworkBf16::kv_layer_elements() const {
  return 2 * ops::kv_block_elements_bf16(config_.attention_shape());
}

void NetworkBf16::prepare(const cpu::Context& context, int64_t positions) {
  if (positions > rope_.positions)
    rope_ = ops::make_rope_table(context, config_.rope_base, config_.head_size, positions);
  repack(context);
}

void NetworkBf16::repack(const cpu::Context& context) {
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

int64_t NetworkBf16::packed_bytes(const ModelConfig& config) {
  using Packed = ops::PackedMatrixBf16;
  const int64_t h = config.hidden;
  const int64_t layer = Packed::bytes_for(config.qkv_size(), h) + Packed::bytes_for(h, config.q_size()) +
                        Packed::bytes_for(2 * config.intermediate, h) +
                        Packed::bytes_for(h, config.intermediate);
  return config.layers * layer + Packed::bytes_for(config.vocab, h);
}

Status NetworkBf16::layer_forward(const cpu::Context& context, int64_t layer,
                                  const ForwardBatchOf<Bf16>& batch, const Bf16* h_in, Bf16* h_mid,
                                  Bf16* h_out, LayerActivationsBf16* a, LayerScratchBf16* scratch) const {
  const LayerOffsets& offsets = table_.layer(layer);
  const PackedLayer& packed = packed_[static_cast<size_t>(layer)];
  const ops::AttentionShape shape = config_.attention_shape();
  const int64_t rows = batch.rows;
  const int64_t h = config_.hidden;
  const int64_t f = config_.intermediate;
  const int64_t qkv = config_.qkv_size();
  const int64_t q = config_.q_size();
  Bf16* normed = scratch->normed.data();
  float* product = scratch->product.data();

  ops::rms_norm_forward_bf16_cpu(context, h_in, at(offsets.input_norm), config_.rms_eps, rows, h, normed,
                                 a->inverse_rms1.data());
  ops::matmul_bf16_forward_cpu(context, normed, h, packed.qkv, rows, product, qkv);
  // q heads and k heads are consecutive columns.
  const ops::RopeEpilogue rope{rope_.cos.data(), rope_.sin.data(), batch.positions, config_.head_size,
                               q + config_.kv_size()};
  ops::EpilogueBf16 bias;
  bias.bias = at(offsets.qkv_bias);
  bias.rope = &rope;
  ops::matmul_bf16_epilogue_cpu(context, product, qkv, rows, qkv, bias, a->qkv.data(), qkv);

  const LayerBlocks blocks = layer_blocks(batch, layer, ops::kv_block_elements_bf16(shape));
  context.parallel_for(static_cast<int64_t>(batch.runs.size()), [&](int64_t i) {
    const auto& run = batch.runs[static_cast<size_t>(i)];
    const size_t start = blocks.starts[static_cast<size_t>(i)];
    const Bf16* row = a->qkv.data() + run.first_row * qkv;
    ops::write_kv_blocks_bf16(shape, row + q, row + q + config_.kv_size(), qkv, run.rows, run.first_position,
                              blocks.k.data() + start, blocks.v.data() + start);
  });
  if (!ops::attention_forward_bf16_cpu(context, shape, a->qkv.data(), qkv, blocks.attention.data(),
                                       static_cast<int64_t>(blocks.attention.size()), a->attention.data(), q,
                                       a->max_exponent.data(), a->inverse_sum.data())) {
    return stopped("layer {}: an attention score is NaN or at least 2^21; the weights have diverged", layer);
  }
  clear_padding(batch.runs, rows, q, a->attention.data());
  ops::EpilogueBf16 residual;
  residual.residual = h_in;
  residual.ld_residual = h;
  ops::matmul_bf16_forward_cpu(context, a->attention.data(), q, packed.o, rows, product, h);
  ops::matmul_bf16_epilogue_cpu(context, product, h, rows, h, residual, h_mid, h);

  ops::rms_norm_forward_bf16_cpu(context, h_mid, at(offsets.post_norm), config_.rms_eps, rows, h, normed,
                                 a->inverse_rms2.data());
  ops::matmul_bf16_forward_cpu(context, normed, h, packed.gate_up, rows, product, 2 * f);
  ops::matmul_bf16_swiglu_cpu(context, product, 2 * f, rows, f, a->gate_up.data(), 2 * f, scratch->act.data(),
                              f);
  residual.residual = h_mid;
  ops::matmul_bf16_forward_cpu(context, scratch->act.data(), f, packed.down, rows, product, h);
  ops::matmul_bf16_epilogue_cpu(context, product, h, rows, h, residual, h_out, h);
  return ok_status();
}

void NetworkBf16::embed(const cpu::Context& context, const ForwardBatchOf<Bf16>& batch, Bf16* h) const {
  ops::embedding_forward_bf16_cpu(context, at(table_.embedding()), batch.ids, batch.rows, config_.hidden, h);
  clear_padding(batch.runs, batch.rows, config_.hidden, h);
}

Status NetworkBf16::forward(const cpu::Context& context, const ForwardBatchOf<Bf16>& batch, Bf16* h,
                            LayerActivationsBf16* activations, LayerScratchBf16* scratch) const {
  activations->ensure(config_, batch.rows);
  scratch->ensure(config_, batch.rows);
  embed(context, batch, h);
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    LOCKSTEP_RETURN_IF_ERROR(layer_forward(context, layer, batch, h, h, h, activations, scratch));
  }
  return ok_status();
}

void NetworkBf16::final_norm(const cpu::Context& context, const Bf16* h, int64_t rows, Bf16* y,
                             float* inverse_rms) const {
  ops::rms_norm_forward_bf16_cpu(context, h, at(table_.final_norm()), config_.rms_eps, rows, config_.hidden,
                                 y, inverse_rms);
}

void NetworkBf16::logits(const cpu::Context& context, const Bf16* y, int64_t rows, float* out) const {
  ops::matmul_bf16_forward_cpu(context, y, config_.hidden, packed_head_, rows, out, config_.vocab);
}

}  // namespace lockstep::model
