// SPDX-License-Identifier: Apache-2.0
// The CPU's ops of both profiles by one set of names: CpuOps<float> is profile fp32, CpuOps<Bf16> profile
// bf16. Network, passes and learner are written once over it. `product` is a binary32 scratch matrix [rows,
// n] that profile bf16 needs before it rounds.
#pragma once

#include <cstdint>

#include "model/config.h"
#include "numerics/bfloat16.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_bf16_cpu.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/embedding_bf16_cpu.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_bf16_cpu.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/rms_norm_bf16_cpu.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"
#include "ops/swiglu/swiglu_bf16_cpu.h"
#include "ops/vector_gradient/vector_gradient.h"
#include "ops/vector_gradient/vector_gradient_bf16_cpu.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_bf16_cpu.h"

namespace lockstep::model {

using numerics::Bf16;

template <class E>
struct CpuOps;

template <>
struct CpuOps<float> {
  using Packed = ops::PackedMatrix;
  using AttentionRun = ops::AttentionRun;
  static constexpr bool kRounds = false;  // no `product` is needed

  static int64_t packed_bytes(const cpu::Context& c, int64_t n, int64_t k) {
    return Packed::bytes_for(c, n, k);
  }
  static int64_t kv_block_elements(const ops::AttentionShape& shape) { return ops::kv_block_floats(shape); }
  static void embedding(const cpu::Context& c, const float* table, const int32_t* ids, int64_t rows,
                        int64_t h, float* out) {
    ops::embedding_forward_cpu(c, table, ids, rows, h, out);
  }
  static void norm(const cpu::Context& c, const float* x, const float* gain, float eps, int64_t rows,
                   int64_t h, float* y, float* inverse_rms) {
    ops::rms_norm_forward_cpu(c, x, gain, eps, rows, h, y, inverse_rms);
  }
  static void norm_backward(const cpu::Context& c, const float* dy, const float* x, const float* gain,
                            const float* inverse_rms, int64_t rows, int64_t h, float* dh) {
    ops::rms_norm_backward_cpu(c, dy, x, gain, inverse_rms, rows, h, dh);
  }
  // out = x W^T + bias, RoPE on q and k: the heads of both are consecutive columns.
  static void qkv(const cpu::Context& c, const ModelConfig& config, const float* x, const Packed& w,
                  const float* bias, const ops::RopeTable& rope, const int32_t* positions, int64_t rows,
                  float* /*product*/, float* out) {
    ops::MatmulEpilogue epilogue;
    epilogue.bias = bias;
    ops::matmul_forward_cpu(c, x, config.hidden, w, rows, epilogue, out, config.qkv_size());
    ops::rope_cpu(c, rope, positions, rows, config.heads + config.kv_heads, false, out, config.qkv_size());
  }
  // out = residual + x W^T; residual may be out.
  static void add_product(const cpu::Context& c, const float* x, const Packed& w, int64_t rows,
                          const float* residual, float* /*product*/, float* out) {
    ops::MatmulEpilogue epilogue;
    epilogue.residual = residual;
    epilogue.ld_residual = w.n();
    ops::matmul_forward_cpu(c, x, w.k(), w, rows, epilogue, out, w.n());
  }
  static void gate_up(const cpu::Context& c, const float* x, const Packed& w, int64_t rows, int64_t f,
                      float* /*product*/, float* gate_up, float* act) {
    ops::matmul_forward_cpu(c, x, w.k(), w, rows, {}, gate_up, 2 * f);
    ops::swiglu_forward_cpu(c, gate_up, rows, f, act);
  }
  // y = x W^T in binary32.
  static void product(const cpu::Context& c, const float* x, const Packed& w, int64_t rows, float* y) {
    ops::matmul_forward_cpu(c, x, w.k(), w, rows, {}, y, w.n());
  }
  // dx [rows, k] = dy [rows, n] W.
  static void input_gradient(const cpu::Context& c, const float* dy, const float* w, int64_t rows, int64_t n,
                             int64_t k, float* /*product*/, float* dx) {
    ops::matmul_input_gradient_cpu(c, dy, n, w, rows, n, k, dx, k);
  }
  [[nodiscard]] static bool weight_gradient(const cpu::Context& c, const float* dy, int64_t lddy,
                                            const float* x, int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                            const ops::WeightGradientTarget& target) {
    return ops::matmul_weight_gradient_cpu(c, dy, lddy, x, ldx, rows, n, k, target);
  }
  static void swiglu(const cpu::Context& c, const float* gate_up, int64_t rows, int64_t f, float* y) {
    ops::swiglu_forward_cpu(c, gate_up, rows, f, y);
  }
  static void swiglu_backward(const cpu::Context& c, const float* dy, const float* gate_up, int64_t rows,
                              int64_t f, float* d_gate_up) {
    ops::swiglu_backward_cpu(c, dy, gate_up, rows, f, d_gate_up);
  }
  static void write_kv(const ops::AttentionShape& shape, const float* k, const float* v, int64_t ld,
                       int64_t rows, int64_t first, float* const* k_blocks, float* const* v_blocks) {
    ops::write_kv_blocks(shape, k, v, ld, rows, first, k_blocks, v_blocks);
  }
  [[nodiscard]] static bool attention(const cpu::Context& c, const ModelConfig& config, const float* qkv,
                                      const AttentionRun* runs, int64_t n, float* out, float* max_exponent,
                                      float* inverse_sum) {
    return ops::attention_forward_cpu(c, config.attention_shape(), qkv, config.qkv_size(), runs, n, out,
                                      config.q_size(), max_exponent, inverse_sum);
  }
  // d_qkv before RoPE and bias.
  static void attention_backward(const cpu::Context& c, const ModelConfig& config, const float* qkv,
                                 const float* out, const float* d_out, const float* max_exponent,
                                 const float* inverse_sum, const ops::AttentionSample* samples, int64_t n,
                                 const ops::RopeTable& rope, const int32_t* positions, int64_t rows,
                                 float* d_qkv) {
    ops::attention_backward_cpu(c, config.attention_shape(), qkv, out, d_out, max_exponent, inverse_sum,
                                samples, n, d_qkv);
    ops::rope_cpu(c, rope, positions, rows, config.heads + config.kv_heads, true, d_qkv, config.qkv_size());
  }
  // The gradient of the logits: over them; `out` is not used.
  static const float* vocabulary_gradient(const cpu::Context& c, float* logits, int64_t rows, int64_t vocab,
                                          float scale, float inverse_temperature,
                                          const ops::VocabularySums* sums,
                                          const ops::VocabularyGradientRow* grads, float* /*out*/) {
    ops::vocabulary_gradient_cpu(c, logits, vocab, rows, vocab, scale, inverse_temperature, sums, grads);
    return logits;
  }
  [[nodiscard]] static bool gain_gradient(const cpu::Context& c, const float* dy, const float* x,
                                          const float* inverse_rms, int64_t h, const ops::SampleRows* samples,
                                          int64_t n, float bound, int64_t* image) {
    return ops::gain_gradient_cpu(c, dy, x, inverse_rms, h, samples, n, bound, image);
  }
  [[nodiscard]] static bool bias_gradient(const cpu::Context& c, const float* dy, int64_t lddy, int64_t width,
                                          const ops::SampleRows* samples, int64_t n, float bound,
                                          int64_t* image) {
    return ops::bias_gradient_cpu(c, dy, lddy, width, samples, n, bound, image);
  }
  [[nodiscard]] static bool embedding_gradient(const cpu::Context& c, const float* dh, const int32_t* ids,
                                               int64_t rows, int64_t h, float bound, int64_t* image) {
    return ops::embedding_gradient_cpu(c, dh, ids, rows, h, bound, image);
  }
};

template <>
struct CpuOps<Bf16> {
  using Packed = ops::PackedMatrixBf16;
  using AttentionRun = ops::AttentionRunBf16;
  static constexpr bool kRounds = true;

  static int64_t packed_bytes(const cpu::Context& /*c*/, int64_t n, int64_t k) {
    return Packed::bytes_for(n, k);
  }
  static int64_t kv_block_elements(const ops::AttentionShape& shape) {
    return ops::kv_block_elements_bf16(shape);
  }
  static void embedding(const cpu::Context& c, const Bf16* table, const int32_t* ids, int64_t rows, int64_t h,
                        Bf16* out) {
    ops::embedding_forward_bf16_cpu(c, table, ids, rows, h, out);
  }
  static void norm(const cpu::Context& c, const Bf16* x, const Bf16* gain, float eps, int64_t rows, int64_t h,
                   Bf16* y, float* inverse_rms) {
    ops::rms_norm_forward_bf16_cpu(c, x, gain, eps, rows, h, y, inverse_rms);
  }
  static void norm_backward(const cpu::Context& c, const Bf16* dy, const Bf16* x, const Bf16* gain,
                            const float* inverse_rms, int64_t rows, int64_t h, Bf16* dh) {
    ops::rms_norm_backward_bf16_cpu(c, dy, x, gain, inverse_rms, rows, h, dh);
  }
  static void qkv(const cpu::Context& c, const ModelConfig& config, const Bf16* x, const Packed& w,
                  const Bf16* bias, const ops::RopeTable& rope, const int32_t* positions, int64_t rows,
                  float* product, Bf16* out) {
    const int64_t n = config.qkv_size();
    const ops::RopeEpilogue rotate{rope.cos.data(), rope.sin.data(), positions, config.head_size,
                                   config.q_size() + config.kv_size()};
    ops::EpilogueBf16 epilogue;
    epilogue.bias = bias;
    epilogue.rope = &rotate;
    ops::matmul_bf16_forward_cpu(c, x, config.hidden, w, rows, product, n);
    ops::matmul_bf16_epilogue_cpu(c, product, n, rows, n, epilogue, out, n);
  }
  static void add_product(const cpu::Context& c, const Bf16* x, const Packed& w, int64_t rows,
                          const Bf16* residual, float* product, Bf16* out) {
    ops::EpilogueBf16 epilogue;
    epilogue.residual = residual;
    epilogue.ld_residual = w.n();
    ops::matmul_bf16_forward_cpu(c, x, w.k(), w, rows, product, w.n());
    ops::matmul_bf16_epilogue_cpu(c, product, w.n(), rows, w.n(), epilogue, out, w.n());
  }
  static void gate_up(const cpu::Context& c, const Bf16* x, const Packed& w, int64_t rows, int64_t f,
                      float* product, Bf16* gate_up, Bf16* act) {
    ops::matmul_bf16_forward_cpu(c, x, w.k(), w, rows, product, 2 * f);
    ops::matmul_bf16_swiglu_cpu(c, product, 2 * f, rows, f, gate_up, 2 * f, act, f);
  }
  static void product(const cpu::Context& c, const Bf16* x, const Packed& w, int64_t rows, float* y) {
    ops::matmul_bf16_forward_cpu(c, x, w.k(), w, rows, y, w.n());
  }
  static void input_gradient(const cpu::Context& c, const Bf16* dy, const Bf16* w, int64_t rows, int64_t n,
                             int64_t k, float* product, Bf16* dx) {
    ops::matmul_bf16_input_gradient_cpu(c, dy, n, w, rows, n, k, product, k);
    ops::matmul_bf16_epilogue_cpu(c, product, k, rows, k, {}, dx, k);
  }
  [[nodiscard]] static bool weight_gradient(const cpu::Context& c, const Bf16* dy, int64_t lddy,
                                            const Bf16* x, int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                            const ops::WeightGradientTarget& target) {
    return ops::matmul_bf16_weight_gradient_cpu(c, dy, lddy, x, ldx, rows, n, k, target);
  }
  static void swiglu(const cpu::Context& c, const Bf16* gate_up, int64_t rows, int64_t f, Bf16* y) {
    ops::swiglu_forward_bf16_cpu(c, gate_up, rows, f, y);
  }
  static void swiglu_backward(const cpu::Context& c, const Bf16* dy, const Bf16* gate_up, int64_t rows,
                              int64_t f, Bf16* d_gate_up) {
    ops::swiglu_backward_bf16_cpu(c, dy, gate_up, rows, f, d_gate_up);
  }
  static void write_kv(const ops::AttentionShape& shape, const Bf16* k, const Bf16* v, int64_t ld,
                       int64_t rows, int64_t first, Bf16* const* k_blocks, Bf16* const* v_blocks) {
    ops::write_kv_blocks_bf16(shape, k, v, ld, rows, first, k_blocks, v_blocks);
  }
  [[nodiscard]] static bool attention(const cpu::Context& c, const ModelConfig& config, const Bf16* qkv,
                                      const AttentionRun* runs, int64_t n, Bf16* out, float* max_exponent,
                                      float* inverse_sum) {
    return ops::attention_forward_bf16_cpu(c, config.attention_shape(), qkv, config.qkv_size(), runs, n, out,
                                           config.q_size(), max_exponent, inverse_sum);
  }
  static void attention_backward(const cpu::Context& c, const ModelConfig& config, const Bf16* qkv,
                                 const Bf16* out, const Bf16* d_out, const float* max_exponent,
                                 const float* inverse_sum, const ops::AttentionSample* samples, int64_t n,
                                 const ops::RopeTable& rope, const int32_t* /*positions*/, int64_t /*rows*/,
                                 Bf16* d_qkv) {
    ops::attention_backward_bf16_cpu(c, config.attention_shape(), qkv, config.qkv_size(), out, d_out,
                                     max_exponent, inverse_sum, samples, n,
                                     {rope.cos.data(), rope.sin.data()}, d_qkv);
  }
  // The gradient of the logits, rounded into `out`; the logits are overwritten.
  static const Bf16* vocabulary_gradient(const cpu::Context& c, float* logits, int64_t rows, int64_t vocab,
                                         float scale, float inverse_temperature,
                                         const ops::VocabularySums* sums,
                                         const ops::VocabularyGradientRow* grads, Bf16* out) {
    ops::vocabulary_gradient_bf16_cpu(c, logits, vocab, rows, vocab, scale, inverse_temperature, sums, grads,
                                      out, vocab);
    return out;
  }
  [[nodiscard]] static bool gain_gradient(const cpu::Context& c, const Bf16* dy, const Bf16* x,
                                          const float* inverse_rms, int64_t h, const ops::SampleRows* samples,
                                          int64_t n, float bound, int64_t* image) {
    return ops::gain_gradient_bf16_cpu(c, dy, x, inverse_rms, h, samples, n, bound, image);
  }
  [[nodiscard]] static bool bias_gradient(const cpu::Context& c, const Bf16* dy, int64_t lddy, int64_t width,
                                          const ops::SampleRows* samples, int64_t n, float bound,
                                          int64_t* image) {
    return ops::bias_gradient_bf16_cpu(c, dy, lddy, width, samples, n, bound, image);
  }
  [[nodiscard]] static bool embedding_gradient(const cpu::Context& c, const Bf16* dh, const int32_t* ids,
                                               int64_t rows, int64_t h, float bound, int64_t* image) {
    return ops::embedding_gradient_bf16_cpu(c, dh, ids, rows, h, bound, image);
  }
};

}  // namespace lockstep::model
