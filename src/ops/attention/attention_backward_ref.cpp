// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "numerics/constants.h"
#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace {

using numerics::kKeyBlock;

// One sample and key/value head: P and dS of every query head of the group, then the chains over them.
class SampleBackward {
 public:
  SampleBackward(const AttentionShape& shape, int64_t kv_head, const float* qkv, const float* out,
                 const float* d_out, const float* max_exponent, const float* inverse_sum,
                 const AttentionSample& sample)
      : shape_(shape),
        d_(shape.head_size),
        group_(shape.heads / shape.kv_heads),
        kv_head_(kv_head),
        rows_(sample.end - sample.begin),
        qkv_(qkv + sample.begin * ld()),
        out_(out + sample.begin * shape.heads * d_),
        d_out_(d_out + sample.begin * shape.heads * d_),
        max_exponent_(max_exponent + sample.begin * shape.heads),
        inverse_sum_(inverse_sum + sample.begin * shape.heads),
        p_(group_ * rows_ * rows_),
        ds_(group_ * rows_ * rows_) {}

  void run(float* d_qkv) {
    for (int64_t g = 0; g < group_; ++g) weights(g);
    for (int64_t g = 0; g < group_; ++g) query_gradient(g, d_qkv);
    const float scale = attention_gradient_scale(d_);
    for (int64_t j = 0; j < rows_; ++j) {
      float* dk = d_qkv + j * ld() + (shape_.heads + kv_head_) * d_;
      float* dv = d_qkv + j * ld() + (shape_.heads + shape_.kv_heads + kv_head_) * d_;
      for (int64_t i = 0; i < d_; ++i) {
        dk[i] = key_chain(ds_, j, qkv_ + kv_head_ * group_ * d_ + i, ld()) * scale;
        dv[i] = key_chain(p_, j, d_out_ + kv_head_ * group_ * d_ + i, shape_.heads * d_);
      }
    }
  }

 private:
  int64_t ld() const { return (shape_.heads + 2 * shape_.kv_heads) * d_; }
  const float* q(int64_t row, int64_t g) const { return qkv_ + row * ld() + (kv_head_ * group_ + g) * d_; }
  const float* k(int64_t row) const { return qkv_ + row * ld() + (shape_.heads + kv_head_) * d_; }
  const float* v(int64_t row) const { return k(row) + shape_.kv_heads * d_; }
  int64_t at(int64_t g, int64_t row, int64_t key) const { return (g * rows_ + row) * rows_ + key; }

  float dot(const float* a, const float* b) const {
    float sum = 0.0F;
    for (int64_t i = 0; i < d_; ++i) sum = std::fma(a[i], b[i], sum);
    return sum;
  }

  void weights(int64_t g) {
    const float c = attention_score_scale(d_);
    const int64_t head = kv_head_ * group_ + g;
    for (int64_t row = 0; row < rows_; ++row) {
      const float* d_row = d_out_ + (row * shape_.heads + head) * d_;
      const float row_sum = numerics::row_dot(d_row, out_ + (row * shape_.heads + head) * d_, d_);
      const float max = max_exponent_[row * shape_.heads + head];
      for (int64_t j = 0; j <= row; ++j) {
        const float s = dot(q(row, g), k(j)) * c;
        const float n = numerics::round_even(s);
        const float w =
            n - max < static_cast<float>(numerics::kWeightFloor)
                ? 0.0F
                : numerics::scale_by_pow2(numerics::exp2_fraction(s - n), static_cast<int>(n - max));
        const float p = w * inverse_sum_[row * shape_.heads + head];
        p_[at(g, row, j)] = p;
        ds_[at(g, row, j)] = p * (dot(d_row, v(j)) - row_sum);
      }
    }
  }

  void query_gradient(int64_t g, float* d_qkv) const {
    const float scale = attention_gradient_scale(d_);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < d_; ++i) {
        float sum = 0.0F;
        for (int64_t j = 0; j <= row; ++j) sum = std::fma(ds_[at(g, row, j)], k(j)[i], sum);
        d_qkv[row * ld() + (kv_head_ * group_ + g) * d_ + i] = sum * scale;
      }
    }
  }

  // The chain of key j over the group's query heads, then the queries that see it; b is the element of query
  // row 0 of the group's first head. A step's number counts all queries from the block's start, so that
  // chunks end at the same step for all keys of a block.
  float key_chain(const std::vector<float>& a, int64_t j, const float* b, int64_t ldb) const {
    const int64_t block = j / kKeyBlock * kKeyBlock;
    const int64_t padded = (rows_ + numerics::kTokenPad - 1) / numerics::kTokenPad * numerics::kTokenPad;
    float total = 0.0F;
    float chain = 0.0F;
    int64_t chunk = 0;
    for (int64_t g = 0; g < group_; ++g) {
      for (int64_t row = j; row < rows_; ++row) {
        const int64_t step = g * (padded - block) + (row - block);
        if (step / numerics::kGradientChunk != chunk) {
          total = chunk == 0 ? chain : total + chain;
          chain = 0.0F;
          chunk = step / numerics::kGradientChunk;
        }
        chain = std::fma(a[at(g, row, j)], b[row * ldb + g * d_], chain);
      }
    }
    return chunk == 0 ? chain : total + chain;
  }

  AttentionShape shape_;
  int64_t d_, group_, kv_head_, rows_;
  const float* qkv_;
  const float* out_;
  const float* d_out_;
  const float* max_exponent_;
  const float* inverse_sum_;
  std::vector<float> p_, ds_;  // [group, rows, rows]; keys after the row are not there
};

}  // namespace

void attention_backward_ref(const AttentionShape& shape, const float* qkv, const float* out,
                            const float* d_out, const float* max_exponent, const float* inverse_sum,
                            const AttentionSample* samples, int64_t n_samples, float* d_qkv) {
  const int64_t ld = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  for (int64_t s = 0; s < n_samples; ++s) {
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      SampleBackward(shape, kv_head, qkv, out, d_out, max_exponent, inverse_sum, samples[s])
          .run(d_qkv + samples[s].begin * ld);
    }
  }
}

}  // namespace lockstep::ops
