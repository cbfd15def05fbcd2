// SPDX-License-Identifier: Apache-2.0
// Elements of the GPU backend's buffers, as functions of the shape and the rows of a batch: what allocates
// them and what counts memory beforehand (gpu_memory.h) use the same. E below is the profile's element.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/config.h"

namespace lockstep::model {

// Row stride of logits: 16-byte aligned rows in both profiles.
inline int64_t logits_stride(const ModelConfig& config) {
  return (config.vocab + 7) / 8 * 8;
}

// Logits of training in memory at once, in rows; a multiple of the padding.
inline constexpr int64_t kLogitsRows = 4096;

// Of one layer's activations (DeviceActivations).
struct LayerElements {
  int64_t row = 0;                                         // float, two such: inverse root mean squares
  int64_t statistics = 0;                                  // float, two such: of attention's softmax
  int64_t qkv = 0, attention = 0, h_mid = 0, gate_up = 0;  // E
  LayerElements(const ModelConfig& config, int64_t rows)
      : row(rows),
        statistics(rows * config.heads),
        qkv(rows * config.qkv_size()),
        attention(rows * config.q_size()),
        h_mid(rows * config.hidden),
        gate_up(rows * 2 * config.intermediate) {}
  int64_t bytes(int64_t element) const {
    return 8 * (row + statistics) + element * (qkv + attention + h_mid + gate_up);
  }
};

// Rows of a decode step that is recorded: few sizes, so that few graphs; a sequence that ends leaves padding.
inline int64_t padded_decode_rows(int64_t rows) {
  const int64_t unit = rows <= 4 ? 1 : rows <= 64 ? 8 : rows <= 512 ? 16 : 128;
  return (rows + unit - 1) / unit * unit;
}

// Of a decode step besides a layer's activations (CudaDecoder): `rows` rows of which `draws` draw a token.
struct DecodeElements {
  int64_t hidden = 0;  // E
  int64_t last = 0;    // E, each of: gathered, normed
  int64_t logits = 0;  // float
  DecodeElements(const ModelConfig& config, int64_t rows, int64_t draws)
      : hidden(rows * config.hidden), last(draws * config.hidden), logits(draws * logits_stride(config)) {}
};

// Whether RoPE is part of the product that makes q, k and v, in profile bf16 (matmul_bf16_cuda.h, kRope).
inline bool fuses_rope(const ModelConfig& config) {
  return config.head_size == 64 || config.head_size == 128;
}

// Of what a layer's forward pass does not keep (DeviceScratch).
struct ScratchElements {
  int64_t normed = 0, act = 0;  // E
  int64_t product = 0;          // float; where RoPE is not part of the product
  ScratchElements(const ModelConfig& config, int64_t rows)
      : normed(rows * config.hidden),
        act(rows * config.intermediate),
        product(fuses_rope(config) ? 0 : rows * config.qkv_size()) {}
  int64_t bytes(int64_t element) const { return element * (normed + act) + 4 * product; }
};

// Of a micro-batch besides the layers' activations (CudaTrainingPass); E.
struct PassElements {
  int64_t hidden = 0;  // each of layers + 1 residual streams
  int64_t d_act = 0, d_gate_up = 0, d_normed = 0, d_attention = 0, d_qkv = 0;
  PassElements(const ModelConfig& config, int64_t rows)
      : hidden(rows * config.hidden),
        d_act(rows * config.intermediate),
        d_gate_up(rows * 2 * config.intermediate),
        d_normed(rows * config.hidden),
        d_attention(rows * config.q_size()),
        d_qkv(rows * config.qkv_size()) {}
  int64_t gradients() const { return d_act + d_gate_up + d_normed + d_attention + d_qkv; }
};

// Of the head over the loss rows of a micro-batch (CudaLearner).
struct HeadElements {
  int64_t hidden = 0;  // E, each of: gathered, slots, d_slots; dy, dh, normed
  int64_t rows = 0;    // float
  int64_t block = 0;   // loss rows at once
  int64_t logits = 0;  // float; bf16: E too, for their gradient
  HeadElements(const ModelConfig& config, int64_t rows)
      : hidden(rows * config.hidden),
        rows(rows),
        block(std::min(rows, kLogitsRows)),
        logits(block * logits_stride(config)) {}
};

}  // namespace lockstep::model
