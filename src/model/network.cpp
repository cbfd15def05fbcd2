// SPDX-License-Identifier: Apache-2.0
#include "model/network.h"

#include <algorithm>

#include "numerics/constants.h"
#include "ops/attention/attention.h"
#include "ops/embedding/embedding.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/swiglu/swiglu.h"

namespace lockstep::model {
namespace {

// Pointers to one layer's K and V blocks of every run.
struct LayerBlocks {
  std::vector<float*> k, v;                  // blocks of all runs, in order
  std::vector<size_t> starts;                // of each run, in k and v
  std::vector<ops::AttentionRun> attention;  // point into k and v
};

LayerBlocks layer_blocks(const ForwardBatch& batch, int64_t layer, int64_t block_floats) {
  LayerBlocks out;
  for (const SequenceRun& run : batch.runs) {
    out.starts.push_back(out.k.size());
    const int64_t blocks = (run.first_position + run.rows + numerics::kKeyBlock - 1) / numerics::kKeyBlock;
    for (int64_t b = 0; b < blocks; ++b) {
      float* base = run.pages[b] + layer * batch.layer_stride;
      out.k.push_back(base);
      out.v.push_back(base + block_floats);
    }
  }
  for (size_t i = 0; i < batch.runs.size(); ++i) {
    const SequenceRun& run = batch.runs[i];
    out.attention.push_back({run.first_row, run.rows, run.first_position, out.k.data() + out.starts[i],
                             out.v.data() + out.starts[i]});
  }
  return out;
}

}  // namespace

void LayerActivations::ensure(const ModelConfig& config, int64_t rows) {
  inverse_rms1.ensure(rows);
  qkv.ensure(rows * config.qkv_size());
  max_exponent.ensure(rows * config.heads);
  inverse_sum.ensure(rows * config.heads);
  attention.ensure(rows * config.q_size());
  h_mid.ensure(rows * config.hidden);
  inverse_rms2.ensure(rows);
  gate_up.ensure(rows * 2 * config.intermediate);
}

int64_t LayerActivations::bytes(const ModelConfig& config, int64_t rows) {
  const int64_t floats =
      2 + config.qkv_size() + 2 * config.heads + config.q_size() + config.hidden + 2 * config.intermediate;
  return rows * floats * static_cast<int64_t>(sizeof(float));
}

void LayerScratch::ensure(const ModelConfig& config, int64_t rows) {
  normed.ensure(rows * config.hidden);
  act.ensure(rows * config.intermediate);
}

int64_t kv_layer_floats(const ModelConfig& config) {
  return 2 * ops::kv_block_floats(config.attention_shape());
}

Network::Network(ModelConfig config, ParameterTable table)
    : config_(std::move(config)),
      table_(std::move(table)),
      arena_(Buffer<float>::zeros(table_.arena_size())),
      packed_(static_cast<size_t>(config_.layers)) {}

void Network::prepare(const cpu::Context& context, int64_t positions) {
  if (positions > rope_.positions)
    rope_ = ops::make_rope_table(context, config_.rope_base, config_.head_size, positions);
  repack(context);
}

void Network::repack(const cpu::Context& context) {
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

int64_t Network::packed_bytes(const cpu::Context& context, const ModelConfig& config) {
  const int64_t h = config.hidden;
  const int64_t layer = ops::PackedMatrix::bytes_for(context, config.qkv_size(), h) +
                        ops::PackedMatrix::bytes_for(context, h, config.q_size()) +
                        ops::PackedMatrix::bytes_for(context, 2 * config.intermediate, h) +
                        ops::PackedMatrix::bytes_for(context, h, config.intermediate);
  return config.layers * layer + ops::PackedMatrix::bytes_for(context, config.vocab, h);
}

Status Network::layer_forward(const cpu::Context& context, int64_t layer, const ForwardBatch& batch,
                              const float* h_in, float* h_mid, float* h_out, LayerActivations* a,
                              LayerScratch* scratch) const {
  const LayerOffsets& offsets = table_.layer(layer);
  const PackedLayer& packed = packed_[static_cast<size_t>(layer)];
  const ops::AttentionShape shape = config_.attention_shape();
  const int64_t rows = batch.rows;
  const int64_t h = config_.hidden;
  const int64_t qkv = config_.qkv_size();
  const int64_t q = config_.q_size();
  float* normed = scratch->normed.data();

  ops::rms_norm_forward_cpu(context, h_in, at(offsets.input_norm), config_.rms_eps, rows, h, normed,
                            a->inverse_rms1.data());
  ops::MatmulEpilogue bias;
  bias.bias = at(offsets.qkv_bias);
  ops::matmul_forward_cpu(context, normed, h, packed.qkv, rows, bias, a->qkv.data(), qkv);
  // q heads and k heads are consecutive columns.
  ops::rope_cpu(context, rope_, batch.positions, rows, config_.heads + config_.kv_heads, false, a->qkv.data(),
                qkv);

  const LayerBlocks blocks = layer_blocks(batch, layer, ops::kv_block_floats(shape));
  context.parallel_for(static_cast<int64_t>(batch.runs.size()), [&](int64_t i) {
    const SequenceRun& run = batch.runs[static_cast<size_t>(i)];
    const size_t start = blocks.starts[static_cast<size_t>(i)];
    const float* row = a->qkv.data() + run.first_row * qkv;
    ops::write_kv_blocks(shape, row + q, row + q + config_.kv_size(), qkv, run.rows, run.first_position,
                         blocks.k.data() + start, blocks.v.data() + start);
  });
  if (!ops::attention_forward_cpu(context, shape, a->qkv.data(), qkv, blocks.attention.data(),
                                  static_cast<int64_t>(blocks.attention.size()), a->attention.data(), q,
                                  a->max_exponent.data(), a->inverse_sum.data())) {
    return stopped("layer {}: an attention score is NaN or at least 2^21; the weights have diverged", layer);
  }
  ops::MatmulEpilogue residual;
  residual.residual = h_in;
  residual.ld_residual = h;
  ops::matmul_forward_cpu(context, a->attention.data(), q, packed.o, rows, residual, h_mid, h);

  ops::rms_norm_forward_cpu(context, h_mid, at(offsets.post_norm), config_.rms_eps, rows, h, normed,
                            a->inverse_rms2.data());
  ops::matmul_forward_cpu(context, normed, h, packed.gate_up, rows, {}, a->gate_up.data(),
                          2 * config_.intermediate);
  ops::swiglu_forward_cpu(context, a->gate_up.data(), rows, config_.intermediate, scratch->act.data());
  residual.residual = h_mid;
  ops::matmul_forward_cpu(context, scratch->act.data(), config_.intermediate, packed.down, rows, residual,
                          h_out, h);
  return ok_status();
}

Status Network::forward(const cpu::Context& context, const ForwardBatch& batch, float* h,
                        LayerActivations* activations, LayerScratch* scratch) const {
  activations->ensure(config_, batch.rows);
  scratch->ensure(config_, batch.rows);
  ops::embedding_forward_cpu(context, at(table_.embedding()), batch.ids, batch.rows, config_.hidden, h);
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    LOCKSTEP_RETURN_IF_ERROR(layer_forward(context, layer, batch, h, h, h, activations, scratch));
  }
  return ok_status();
}

void Network::final_norm(const cpu::Context& context, const float* h, int64_t rows, float* y,
                         float* inverse_rms) const {
  ops::rms_norm_forward_cpu(context, h, at(table_.final_norm()), config_.rms_eps, rows, config_.hidden, y,
                            inverse_rms);
}

void Network::logits(const cpu::Context& context, const float* y, int64_t rows, float* out) const {
  ops::matmul_forward_cpu(context, y, config_.hidden, packed_head_, rows, {}, out, config_.vocab);
}

}  // namespace lockstep::model
