// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "numerics/tc16.h"
#include "ops/attention/attention_bf16.h"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::kKeyBlock;
using numerics::kTc16Products;

// acc = TC16(acc, 16 pairs): element t of a at a[t * step_a], of b at b[t * step_b]; those from `there` on
// are zeros.
float tc16(float acc, const Bf16* a, int64_t step_a, const Bf16* b, int64_t step_b, int64_t there) {
  Bf16 ga[kTc16Products] = {};
  Bf16 gb[kTc16Products] = {};
  for (int64_t t = 0; t < std::min<int64_t>(there, kTc16Products); ++t) {
    ga[t] = a[t * step_a];
    gb[t] = b[t * step_b];
  }
  return numerics::tc16_step(acc, ga, gb);
}

// One sample and key/value head: P and dS of every query head of the group, then the chains over them.
class SampleBackward {
 public:
  SampleBackward(const AttentionShape& shape, int64_t kv_head, const Bf16* qkv, int64_t ld, const Bf16* out,
                 const Bf16* d_out, const float* max_exponent, const float* inverse_sum,
                 const AttentionSample& sample, const AttentionRope& rope, int64_t chunk)
      : shape_(shape),
        d_(shape.head_size),
        group_(shape.heads / shape.kv_heads),
        kv_head_(kv_head),
        rows_(sample.end - sample.begin),
        ld_(ld),
        chunk_(chunk),
        qkv_(qkv + sample.begin * ld),
        out_(out + sample.begin * shape.heads * d_),
        d_out_(d_out + sample.begin * shape.heads * d_),
        max_exponent_(max_exponent + sample.begin * shape.heads),
        inverse_sum_(inverse_sum + sample.begin * shape.heads),
        rope_(rope),
        p_(group_ * rows_ * rows_),
        ds_(group_ * rows_ * rows_) {}

  void run(Bf16* d_qkv) {
    for (int64_t g = 0; g < group_; ++g) weights(g);
    for (int64_t g = 0; g < group_; ++g) query_gradient(g, d_qkv);
    const float scale = attention_gradient_scale(d_);
    std::vector<float> dk(d_);
    for (int64_t j = 0; j < rows_; ++j) {
      Bf16* to = d_qkv + j * ld_ + (shape_.heads + kv_head_) * d_;
      for (int64_t i = 0; i < d_; ++i) {
        dk[i] = key_chain(ds_, j, qkv_ + kv_head_ * group_ * d_ + i, ld_) * scale;
        to[shape_.kv_heads * d_ + i] = numerics::float_to_bfloat16(
            key_chain(p_, j, d_out_ + kv_head_ * group_ * d_ + i, shape_.heads * d_));
      }
      store(dk, j, to);
    }
  }

 private:
  const Bf16* q(int64_t row, int64_t g) const { return qkv_ + row * ld_ + (kv_head_ * group_ + g) * d_; }
  const Bf16* k(int64_t row) const { return qkv_ + row * ld_ + (shape_.heads + kv_head_) * d_; }
  const Bf16* v(int64_t row) const { return k(row) + shape_.kv_heads * d_; }
  int64_t at(int64_t g, int64_t row, int64_t key) const { return (g * rows_ + row) * rows_ + key; }

  float dot(const Bf16* a, const Bf16* b) const {
    float acc = 0.0F;
    for (int64_t i = 0; i < d_; i += kTc16Products) acc = tc16(acc, a + i, 1, b + i, 1, d_ - i);
    return acc;
  }

  void weights(int64_t g) {
    const float c = attention_score_scale(d_);
    const int64_t head = kv_head_ * group_ + g;
    std::vector<float> a(d_), b(d_);
    for (int64_t row = 0; row < rows_; ++row) {
      const Bf16* d_row = d_out_ + (row * shape_.heads + head) * d_;
      const Bf16* o_row = out_ + (row * shape_.heads + head) * d_;
      for (int64_t i = 0; i < d_; ++i) {
        a[i] = numerics::bfloat16_to_float(d_row[i]);
        b[i] = numerics::bfloat16_to_float(o_row[i]);
      }
      const float row_sum = numerics::row_dot(a.data(), b.data(), d_);
      const float max = max_exponent_[row * shape_.heads + head];
      for (int64_t j = 0; j <= row; ++j) {
        const float s = dot(q(row, g), k(j)) * c;
        const float n = numerics::round_even(s);
        const float w =
            n - max < static_cast<float>(numerics::kWeightFloor)
                ? 0.0F
                : numerics::scale_by_pow2(numerics::exp2_fraction(s - n), static_cast<int>(n - max));
        const Bf16 p = numerics::float_to_bfloat16(w * inverse_sum_[row * shape_.heads + head]);
        p_[at(g, row, j)] = p;
        ds_[at(g, row, j)] =
            numerics::float_to_bfloat16(numerics::bfloat16_to_float(p) * (dot(d_row, v(j)) - row_sum));
      }
    }
  }

  // RoPE undone where there are tables, then the one rounding.
  void store(std::vector<float>& x, int64_t row, Bf16* to) const {
    const int64_t half = d_ / 2;
    if (rope_.cos != nullptr) {
      for (int64_t i = 0; i < half; ++i) {
        const float cosine = rope_.cos[row * half + i];
        const float sine = -rope_.sin[row * half + i];
        const float a = x[i];
        const float b = x[i + half];
        x[i] = std::fma(a, cosine, -(b * sine));
        x[i + half] = std::fma(b, cosine, a * sine);
      }
    }
    for (int64_t i = 0; i < d_; ++i) to[i] = numerics::float_to_bfloat16(x[i]);
  }

  // Groups of 16 keys from position 0 to the row's own; the groups after it in its block are zeros.
  void query_gradient(int64_t g, Bf16* d_qkv) const {
    const float scale = attention_gradient_scale(d_);
    std::vector<float> dq(d_);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < d_; ++i) {
        float sum = 0.0F;
        for (int64_t j = 0; j <= row; j += kTc16Products)
          sum = tc16(sum, ds_.data() + at(g, row, j), 1, k(j) + i, ld_, row + 1 - j);
        dq[i] = sum * scale;
      }
      store(dq, row, d_qkv + row * ld_ + (kv_head_ * group_ + g) * d_);
    }
  }

  // The chain of key j over the group's query heads, then the queries from its block's start on (a: those
  // before the key hold +0); b is the element of query row 0 of the group's first head. A step's number
  // counts all queries from the block's start with the padding of the sample to 16 rows, so a group is 16
  // queries of one head.
  float key_chain(const std::vector<Bf16>& a, int64_t j, const Bf16* b, int64_t ldb) const {
    const int64_t block = j / kKeyBlock * kKeyBlock;
    const int64_t padded = (rows_ + numerics::kTokenPad - 1) / numerics::kTokenPad * numerics::kTokenPad;
    float total = 0.0F;
    float chain = 0.0F;
    int64_t chunk = 0;
    for (int64_t g = 0; g < group_; ++g) {
      for (int64_t row = block; row < rows_; row += kTc16Products) {
        const int64_t step = g * (padded - block) + (row - block);
        if (step / chunk_ != chunk) {
          total = chunk == 0 ? chain : total + chain;
          chain = 0.0F;
          chunk = step / chunk_;
        }
        chain = tc16(chain, a.data() + at(g, row, j), rows_, b + row * ldb + g * d_, ldb, rows_ - row);
      }
    }
    return chunk == 0 ? chain : total + chain;
  }

  AttentionShape shape_;
  int64_t d_, group_, kv_head_, rows_, ld_, chunk_;
  const Bf16* qkv_;
  const Bf16* out_;
  const Bf16* d_out_;
  const float* max_exponent_;
  const float* inverse_sum_;
  AttentionRope rope_;
  std::vector<Bf16> p_, ds_;  // [group, rows, rows]; keys after the row are +0
};

}  // namespace

void attention_backward_bf16_ref(const AttentionShape& shape, const Bf16* qkv, int64_t ld, const Bf16* out,
                                 const Bf16* d_out, const float* max_exponent, const float* inverse_sum,
                                 const AttentionSample* samples, int64_t n_samples, const AttentionRope& rope,
                                 Bf16* d_qkv, int64_t chunk) {
  for (int64_t s = 0; s < n_samples; ++s) {
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      SampleBackward(shape, kv_head, qkv, ld, out, d_out, max_exponent, inverse_sum, samples[s], rope, chunk)
          .run(d_qkv + samples[s].begin * ld);
    }
  }
}

}  // namespace lockstep::ops
