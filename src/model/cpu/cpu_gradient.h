// SPDX-License-Identifier: Apache-2.0
// The gradient of one update as an image of integers (docs/numerics.md, Leaves). Leaves and micro-batches may
// come in any cut; the image is the same.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "device/cpu/context.h"
#include "model/leaf_rows.h"
#include "model/parameters.h"
#include "ops/vector_gradient/vector_gradient.h"

namespace lockstep::model {

class CpuGradient {
 public:
  explicit CpuGradient(const ParameterTable& table);

  // Starts a new update: image all zero, no error. leaves = V, tokens = T of the update (the bounds'
  // divisors).
  void begin(const cpu::Context& context, int64_t leaves, int64_t tokens);

  // image of W [n, k] at `offset` += per leaf the chain of dy^T x over its rows. E: float or Bf16.
  template <class E>
  void add_matrix(const cpu::Context& context, int64_t offset, const E* dy, int64_t lddy, const E* x,
                  int64_t ldx, int64_t n, int64_t k, const std::vector<LeafRows>& leaves);
  template <class E>
  void add_gain(const cpu::Context& context, int64_t offset, const E* dy, const E* x,
                const float* inverse_rms, int64_t h, const std::vector<ops::SampleRows>& samples);
  template <class E>
  void add_bias(const cpu::Context& context, int64_t offset, const E* dy, int64_t lddy, int64_t n,
                const std::vector<ops::SampleRows>& samples);
  // One sample's rows.
  template <class E>
  void add_embedding(const cpu::Context& context, int64_t offset, const E* dh, const int32_t* ids,
                     int64_t rows, int64_t h);

  // kStopped, naming the first tensor and leaf, when a gradient was NaN, infinite or out of range.
  Status status() const;

  int64_t* data() { return image_.data(); }
  const int64_t* data() const { return image_.data(); }

 private:
  void fail(int64_t offset, int64_t leaf);
  void prepare_carry(const std::vector<LeafRows>& leaves);

  const ParameterTable& table_;
  Buffer<int64_t> image_;
  // Chains that wait between micro-batches; allocated when a leaf is first cut.
  Buffer<float> carry_;
  Buffer<float> chunk_sum_;
  float leaf_bound_ = 0;
  float piece_bound_ = 0;
  int64_t failed_leaf_ = -1;
  int64_t failed_offset_ = -1;
};

}  // namespace lockstep::model
