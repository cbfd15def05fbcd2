// SPDX-License-Identifier: Apache-2.0
// The CUDA ops of a profile under one set of names, so that the network is written once. E: float (fp32) or
// numerics::Bf16 (bf16). Row strides are the widths unless given. All pointers are device pointers.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "model/config.h"
#include "model/cuda/sizes.h"
#include "numerics/bfloat16.h"
#include "ops/adamw/adamw_cuda.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_cuda.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/matmul/matmul_bf16_cuda.h"
#include "ops/matmul/matmul_cuda.h"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rope/rope.h"
#include "ops/rope/rope_cuda.h"
#include "ops/swiglu/swiglu_cuda.h"
#include "ops/vector_gradient/vector_gradient_cuda.h"
#include "ops/vocabulary/vocabulary_cuda.h"

namespace lockstep::model {

using numerics::Bf16;

// Device arrays that describe the rows of a batch. Runs: rows of one sequence at consecutive positions.
struct DeviceRows {
  int64_t rows = 0;                    // of every matrix
  const int32_t* ids = nullptr;        // [rows]; of padding -1: a row of zeros
  const int32_t* positions = nullptr;  // [rows]; of padding 0
  int64_t runs = 0;
  const int32_t* run_first_row = nullptr;  // [runs]
  const int32_t* run_rows = nullptr;       // [runs]
  const int32_t* run_position = nullptr;   // [runs] of its first row
  const int32_t* run_sequence = nullptr;   // [runs] 0, 1, ...: its row of the page table
  int64_t max_run_rows = 0;
  int64_t max_keys = 0;
  // Decoding only.
  const int32_t* row_sequence = nullptr;  // [rows]
  const int32_t* decode_keys = nullptr;   // [rows] keys a row sees; 0: the row belongs to a chunk
  const int32_t* chunk_rows = nullptr;    // [runs] rows of a chunk; 0: a single row
  int64_t max_chunk_rows = 0;             // 0: no chunks in the batch
  bool singles = false;                   // there are single rows
  const int32_t* page_table = nullptr;    // [runs][max_pages]
  int64_t max_pages = 0;
};

// Pages of all layers: page p at data + p * stride, layer l's K block at l * layer_stride, its V block half
// of layer_stride behind.
template <class E>
struct DevicePages {
  E* data = nullptr;
  int64_t stride = 0;
  int64_t layer_stride = 0;
};

template <class E>
struct TensorOps;

template <>
struct TensorOps<float> {
  using E = float;
  static void embedding(const cuda::Context& c, const E* table, const int32_t* ids, int64_t rows, int64_t h,
                        E* out) {
    ops::embedding_forward_fp32_cuda(c, table, ids, rows, h, out);
  }
  static void embedding_gradient(const cuda::Context& c, const E* dh, const int32_t* ids, int64_t rows,
                                 int64_t h, float bound, int64_t* image, const cuda::Fault& fault) {
    ops::embedding_gradient_fp32_cuda(c, dh, ids, rows, h, bound, image, fault);
  }
  static void norm(const cuda::Context& c, const E* x, const E* gain, float eps, int64_t rows, int64_t h,
                   E* y, float* inverse_rms) {
    ops::rms_norm_forward_fp32_cuda(c, x, gain, eps, rows, h, y, inverse_rms);
  }
  static void norm_backward(const cuda::Context& c, const E* dy, const E* x, const E* gain,
                            const float* inverse_rms, int64_t rows, int64_t h, E* dh) {
    ops::rms_norm_backward_fp32_cuda(c, dy, x, gain, inverse_rms, rows, h, dh);
  }
  // y = x W^T + bias, RoPE on q and k.
  static void qkv(const cuda::Context& c, const ModelConfig& config, const E* x, const E* w, const E* bias,
                  const ops::RopeDeviceTable& rope, const DeviceRows& rows, float* /*product*/, E* out) {
    const int64_t n = config.qkv_size();
    ops::matmul_forward_fp32_cuda(c, x, config.hidden, w, rows.rows, n, config.hidden, {bias, nullptr, 0},
                                  out, n);
    ops::rope_fp32_cuda(c, rope, rows.positions, rows.rows, config.heads + config.kv_heads, false, out, n);
  }
  static void product(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t n, int64_t k,
                      float* y, int64_t ldy) {
    ops::matmul_forward_fp32_cuda(c, x, k, w, m, n, k, {}, y, ldy);
  }
  // Logits and a token drawn of each row.
  static void sample(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t vocab, int64_t k,
                     const ops::SamplingSettings& settings, const ops::VocabularyDraw* draws, float* logits,
                     int64_t ld, int32_t* tokens, float* log_probs, const cuda::Fault& fault) {
    product(c, x, w, m, vocab, k, logits, ld);
    ops::vocabulary_sample_cuda(c, logits, ld, m, vocab, settings, draws, tokens, log_probs, fault);
  }
  // out = residual + x W^T
  static void add_product(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t n, int64_t k,
                          const E* residual, E* out) {
    ops::matmul_forward_fp32_cuda(c, x, k, w, m, n, k, {nullptr, residual, n}, out, n);
  }
  static void gate_up(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t f, int64_t k,
                      bool /*keeps*/, E* gate_up, E* act) {
    ops::matmul_forward_fp32_cuda(c, x, k, w, m, 2 * f, k, {}, gate_up, 2 * f);
    ops::swiglu_forward_fp32_cuda(c, gate_up, m, f, act);
  }
  static void swiglu_backward(const cuda::Context& c, const E* dy, const E* gate_up, int64_t rows, int64_t f,
                              E* out, E* act) {
    ops::swiglu_backward_fp32_cuda(c, dy, gate_up, rows, f, out, act);
  }
  static void input_gradient(const cuda::Context& c, const E* dy, int64_t lddy, const E* w, int64_t m,
                             int64_t n, int64_t k, E* dx) {
    ops::matmul_input_gradient_fp32_cuda(c, dy, lddy, w, m, n, k, dx, k);
  }
  static ops::AttentionRows samples(const DeviceRows& rows) {
    return {rows.run_first_row, rows.run_rows, nullptr, rows.runs, rows.max_run_rows};
  }
  static void attention(const cuda::Context& c, const ModelConfig& config, const E* qkv,
                        const DeviceRows& rows, E* out, float* max_exponent, float* inverse_sum,
                        const cuda::Fault& fault) {
    ops::attention_forward_samples_fp32_cuda(c, config.attention_shape(), qkv, config.qkv_size(),
                                             samples(rows), out, config.q_size(), max_exponent, inverse_sum,
                                             fault);
  }
  static void attention_backward(const cuda::Context& c, const ModelConfig& config, const E* qkv,
                                 const E* out, const E* d_out, const float* max_exponent,
                                 const float* inverse_sum, const DeviceRows& rows,
                                 const ops::RopeDeviceTable& rope, E* d_qkv) {
    ops::attention_backward_fp32_cuda(c, config.attention_shape(), qkv, out, d_out, max_exponent, inverse_sum,
                                      samples(rows), rows.rows, d_qkv);
    ops::rope_fp32_cuda(c, rope, rows.positions, rows.rows, config.heads + config.kv_heads, true, d_qkv,
                        config.qkv_size());
  }
  // Keys and values of the rows into the pages, then attention over them.
  static void paged_attention(const cuda::Context& c, const ModelConfig& config, const E* qkv,
                              const DeviceRows& rows, const DevicePages<E>& pages, int64_t layer, E* out,
                              const cuda::Fault& fault) {
    const int64_t ld = config.qkv_size();
    const ops::KvPages kv{pages.data + layer * pages.layer_stride, pages.stride, rows.page_table,
                          rows.max_pages};
    const ops::AttentionRows runs{rows.run_first_row, rows.run_rows, rows.run_position, rows.runs,
                                  rows.max_run_rows};
    ops::write_kv_pages_fp32_cuda(c, config.attention_shape(), qkv + config.q_size(),
                                  qkv + config.q_size() + config.kv_size(), ld, runs, kv);
    ops::attention_forward_paged_fp32_cuda(c, config.attention_shape(), qkv, ld, runs, kv, out,
                                           config.q_size(), nullptr, nullptr, fault);
  }
  static void gain_gradient(const cuda::Context& c, const E* dy, const E* x, const float* inverse_rms,
                            int64_t h, const ops::VectorPiece* pieces, int64_t n, float bound, int64_t* image,
                            const cuda::Fault& fault) {
    ops::gain_gradient_fp32_cuda(c, dy, x, inverse_rms, h, pieces, n, bound, image, fault);
  }
  static void bias_gradient(const cuda::Context& c, const E* dy, int64_t ld, int64_t n,
                            const ops::VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
                            const cuda::Fault& fault) {
    ops::bias_gradient_fp32_cuda(c, dy, ld, n, pieces, n_pieces, bound, image, fault);
  }
  static void vocabulary_gradient(const cuda::Context& c, float* logits, int64_t ld, int64_t rows,
                                  int64_t vocab, float scale, float inverse_temperature,
                                  const ops::VocabularySums* sums, const ops::VocabularyGradientRow* grads,
                                  E* /*out: the logits themselves*/) {
    ops::vocabulary_gradient_fp32_cuda(c, logits, ld, rows, vocab, scale, inverse_temperature, sums, grads);
  }
};

template <>
struct TensorOps<Bf16> {
  using E = Bf16;
  static void embedding(const cuda::Context& c, const E* table, const int32_t* ids, int64_t rows, int64_t h,
                        E* out) {
    ops::embedding_forward_bf16_cuda(c, table, ids, rows, h, out);
  }
  static void embedding_gradient(const cuda::Context& c, const E* dh, const int32_t* ids, int64_t rows,
                                 int64_t h, float bound, int64_t* image, const cuda::Fault& fault) {
    ops::embedding_gradient_bf16_cuda(c, dh, ids, rows, h, bound, image, fault);
  }
  static void norm(const cuda::Context& c, const E* x, const E* gain, float eps, int64_t rows, int64_t h,
                   E* y, float* inverse_rms) {
    ops::rms_norm_forward_bf16_cuda(c, x, gain, eps, rows, h, y, inverse_rms);
  }
  static void norm_backward(const cuda::Context& c, const E* dy, const E* x, const E* gain,
                            const float* inverse_rms, int64_t rows, int64_t h, E* dh) {
    ops::rms_norm_backward_bf16_cuda(c, dy, x, gain, inverse_rms, rows, h, dh);
  }
  // product: binary32 [rows, qkv], used where RoPE is not part of the product.
  static void qkv(const cuda::Context& c, const ModelConfig& config, const E* x, const E* w, const E* bias,
                  const ops::RopeDeviceTable& rope, const DeviceRows& rows, float* product, E* out) {
    const int64_t n = config.qkv_size();
    ops::MatmulForwardBf16 forward;
    forward.bias = bias;
    forward.rope = {rope.cos, rope.sin, rows.positions, config.head_size, config.q_size() + config.kv_size()};
    forward.ld_out = n;
    const bool fused = fuses_rope(config);
    forward.output = fused ? ops::MatmulOutput::kRope : ops::MatmulOutput::kFloat;
    forward.out = fused ? static_cast<void*>(out) : static_cast<void*>(product);
    ops::matmul_forward_bf16_cuda(c, x, config.hidden, w, rows.rows, n, config.hidden, forward);
    if (!fused) ops::matmul_rope_bf16_cuda(c, product, n, rows.rows, n, forward.rope, out, n);
  }
  static void product(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t n, int64_t k,
                      float* y, int64_t ldy) {
    ops::MatmulForwardBf16 forward;
    forward.output = ops::MatmulOutput::kFloat;
    forward.out = y;
    forward.ld_out = ldy;
    ops::matmul_forward_bf16_cuda(c, x, k, w, m, n, k, forward);
  }
  // Where the product makes the sums of tiles, the logits are not read for them again.
  static void sample(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t vocab, int64_t k,
                     const ops::SamplingSettings& settings, const ops::VocabularyDraw* draws, float* logits,
                     int64_t ld, int32_t* tokens, float* log_probs, const cuda::Fault& fault) {
    ops::MatmulForwardBf16 forward;
    forward.output = ops::MatmulOutput::kFloat;
    forward.out = logits;
    forward.ld_out = ld;
    if (!ops::matmul_makes_tiles(m, vocab, k, forward)) {
      product(c, x, w, m, vocab, k, logits, ld);
      ops::vocabulary_sample_cuda(c, logits, ld, m, vocab, settings, draws, tokens, log_probs, fault);
      return;
    }
    const ops::VocabularyTiles tiles = ops::vocabulary_scratch_tiles(c, m, vocab);
    forward.tile_max_exponent = tiles.max_exponent;
    forward.tile_sum = tiles.sum;
    forward.tile_scale = ops::vocabulary_scale(settings.temperature);
    ops::matmul_forward_bf16_cuda(c, x, k, w, m, vocab, k, forward);
    ops::vocabulary_sample_from_tiles_cuda(c, logits, ld, m, vocab, tiles, settings, draws, tokens, log_probs,
                                           fault);
  }
  static void add_product(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t n, int64_t k,
                          const E* residual, E* out) {
    ops::MatmulForwardBf16 forward;
    forward.output = ops::MatmulOutput::kResidual;
    forward.residual = residual;
    forward.ld_residual = n;
    forward.out = out;
    forward.ld_out = n;
    ops::matmul_forward_bf16_cuda(c, x, k, w, m, n, k, forward);
  }
  // keeps: gate_up is wanted; else it may be left as it was. Of many rows that are kept, the plain product
  // and the activation after it are a little faster than the fused one, whose three warps of SwiGLU hold it
  // up.
  static void gate_up(const cuda::Context& c, const E* x, const E* w, int64_t m, int64_t f, int64_t k,
                      bool keeps, E* gate_up, E* act) {
    ops::MatmulForwardBf16 forward;
    if (keeps && m > ops::kMatmulDecodeRows) {
      forward.output = ops::MatmulOutput::kBf16;
      forward.out = gate_up;
      forward.ld_out = 2 * f;
      ops::matmul_forward_bf16_cuda(c, x, k, w, m, 2 * f, k, forward);
      ops::swiglu_forward_bf16_cuda(c, gate_up, m, f, act);
      return;
    }
    forward.output = ops::MatmulOutput::kSwiglu;
    forward.out = keeps ? gate_up : nullptr;
    forward.ld_out = 2 * f;
    forward.act = act;
    forward.ld_act = f;
    ops::matmul_forward_bf16_cuda(c, x, k, w, m, 2 * f, k, forward);
  }
  static void swiglu_backward(const cuda::Context& c, const E* dy, const E* gate_up, int64_t rows, int64_t f,
                              E* out, E* act) {
    ops::swiglu_backward_bf16_cuda(c, dy, gate_up, rows, f, out, act);
  }
  static void input_gradient(const cuda::Context& c, const E* dy, int64_t lddy, const E* w, int64_t m,
                             int64_t n, int64_t k, E* dx) {
    ops::matmul_input_gradient_bf16_cuda(c, dy, lddy, w, m, n, k, dx, k);
  }
  static ops::AttentionSamplesCuda samples(const DeviceRows& rows) {
    return {rows.run_first_row, rows.run_rows, rows.runs, rows.max_run_rows, rows.rows};
  }
  static void attention(const cuda::Context& c, const ModelConfig& config, const E* qkv,
                        const DeviceRows& rows, E* out, float* max_exponent, float* inverse_sum,
                        const cuda::Fault& fault) {
    ops::attention_forward_bf16_cuda(c, config.attention_shape(), qkv, config.qkv_size(), samples(rows), out,
                                     max_exponent, inverse_sum, fault);
  }
  static void attention_backward(const cuda::Context& c, const ModelConfig& config, const E* qkv,
                                 const E* out, const E* d_out, const float* max_exponent,
                                 const float* inverse_sum, const DeviceRows& rows,
                                 const ops::RopeDeviceTable& rope, E* d_qkv) {
    ops::attention_backward_bf16_cuda(c, config.attention_shape(), qkv, config.qkv_size(), out, d_out,
                                      max_exponent, inverse_sum, samples(rows), {rope.cos, rope.sin}, d_qkv);
  }
  static void paged_attention(const cuda::Context& c, const ModelConfig& config, const E* qkv,
                              const DeviceRows& rows, const DevicePages<E>& pages, int64_t layer, E* out,
                              const cuda::Fault& fault) {
    const int64_t ld = config.qkv_size();
    const int64_t q = config.q_size();
    const ops::KvPagesCuda kv{pages.data,
                              pages.stride,
                              layer * pages.layer_stride,
                              layer * pages.layer_stride + pages.layer_stride / 2,
                              rows.page_table,
                              rows.max_pages};
    // Single rows alone take their keys and values with them.
    ops::FreshKeysCuda fresh;
    if (rows.max_chunk_rows == 0) {
      fresh = {qkv + q, qkv + q + config.kv_size(), ld};
    } else {
      ops::write_kv_pages_bf16_cuda(c, config.attention_shape(), qkv + q, qkv + q + config.kv_size(), ld,
                                    rows.rows, rows.row_sequence, rows.positions, kv);
    }
    if (rows.singles)
      ops::attention_decode_bf16_cuda(c, config.attention_shape(), qkv, ld, rows.rows, rows.row_sequence,
                                      rows.decode_keys, rows.max_keys, kv, out, q, fault,
                                      numerics::kAttentionSegment, fresh);
    if (rows.max_chunk_rows > 0) {
      const ops::AttentionRunsCuda runs{rows.run_first_row, rows.chunk_rows, rows.run_position,
                                        rows.run_sequence,  rows.runs,       rows.max_chunk_rows,
                                        rows.max_keys};
      ops::attention_prefill_bf16_cuda(c, config.attention_shape(), qkv, ld, runs, kv, out, q, fault);
    }
  }
  static void gain_gradient(const cuda::Context& c, const E* dy, const E* x, const float* inverse_rms,
                            int64_t h, const ops::VectorPiece* pieces, int64_t n, float bound, int64_t* image,
                            const cuda::Fault& fault) {
    ops::gain_gradient_bf16_cuda(c, dy, x, inverse_rms, h, pieces, n, bound, image, fault);
  }
  static void bias_gradient(const cuda::Context& c, const E* dy, int64_t ld, int64_t n,
                            const ops::VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
                            const cuda::Fault& fault) {
    ops::bias_gradient_bf16_cuda(c, dy, ld, n, pieces, n_pieces, bound, image, fault);
  }
  static void vocabulary_gradient(const cuda::Context& c, float* logits, int64_t ld, int64_t rows,
                                  int64_t vocab, float scale, float inverse_temperature,
                                  const ops::VocabularySums* sums, const ops::VocabularyGradientRow* grads,
                                  E* out) {
    ops::vocabulary_gradient_bf16_cuda(c, logits, ld, rows, vocab, scale, inverse_temperature, sums, grads,
                                       out, ld);
  }
};

}  // namespace lockstep::model
