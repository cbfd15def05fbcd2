// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/reduce.h"
#include "ops/attention/attention_bf16_cpu.h"
#include "ops/attention/attention_bf16_tile.h"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::kKeyBlock;
using numerics::Tc16ColumnGroup;
using numerics::Tc16RowElement;

constexpr int64_t kColumns = numerics::kTc16Columns;
constexpr int64_t kStep = numerics::kTc16Products;
constexpr int64_t kQueries = 64;  // of a tile
constexpr int64_t kTileGroups = kQueries / kStep;
constexpr int64_t kKeyTiles = kKeyBlock / kColumns;

struct BackwardInput {
  AttentionShape shape;
  const Bf16* qkv;
  int64_t ld;
  const Bf16* out;
  const Bf16* d_out;
  const float* max_exponent;
  const float* inverse_sum;
  AttentionRope rope;
  int64_t chunk;
};

// One sample and key/value head. Key blocks ascending; in each the group's query heads, then tiles of 64
// queries from the block's start.
class SampleTask {
 public:
  SampleTask(numerics::Tc16Tile tile, const BackwardInput& in, int64_t kv_head, const AttentionSample& sample)
      : tile_(tile),
        in_(in),
        d_(in.shape.head_size),
        padded_d_((in.shape.head_size + kColumns - 1) / kColumns * kColumns),
        groups_(padded_d_ / kColumns),
        group_(in.shape.heads / in.shape.kv_heads),
        kv_head_(kv_head),
        begin_(sample.begin),
        rows_(sample.end - sample.begin),
        q_(static_cast<size_t>(kQueries * padded_d_)),
        d_o_(static_cast<size_t>(kQueries * padded_d_)),
        keys_(static_cast<size_t>(kKeyTiles * groups_)),
        values_(static_cast<size_t>(kKeyTiles * groups_)),
        key_steps_(static_cast<size_t>(groups_ * kTileGroups)),
        tile_steps_(static_cast<size_t>(groups_ * kTileGroups)),
        operand_(static_cast<size_t>(kKeyBlock * kQueries)),
        dq_(static_cast<size_t>(group_ * rows_ * padded_d_)),
        row_sums_(static_cast<size_t>(group_ * rows_)),
        dk_(static_cast<size_t>(kKeyBlock * padded_d_)),
        dv_(dk_.size()),
        dk_total_(dk_.size()),
        dv_total_(dk_.size()) {}

  void run(Bf16* d_qkv) {
    row_sums();
    for (int64_t key = 0; key < rows_; key += kKeyBlock) key_block(key, d_qkv);
    const float scale = attention_gradient_scale(d_);
    for (int64_t g = 0; g < group_; ++g) {
      for (int64_t row = 0; row < rows_; ++row) {
        store(dq_.data() + (g * rows_ + row) * padded_d_, scale, row,
              d_qkv + (begin_ + row) * in_.ld + (kv_head_ * group_ + g) * d_);
      }
    }
  }

 private:
  const Bf16* q(int64_t g, int64_t row) const {
    return in_.qkv + (begin_ + row) * in_.ld + (kv_head_ * group_ + g) * d_;
  }
  const Bf16* k(int64_t row) const {
    return in_.qkv + (begin_ + row) * in_.ld + (in_.shape.heads + kv_head_) * d_;
  }
  const Bf16* v(int64_t row) const { return k(row) + in_.shape.kv_heads * d_; }
  const Bf16* d_o(int64_t g, int64_t row) const {
    return in_.d_out + ((begin_ + row) * in_.shape.heads + kv_head_ * group_ + g) * d_;
  }

  void row_sums() {
    std::vector<float> a(static_cast<size_t>(d_)), b(static_cast<size_t>(d_));
    for (int64_t g = 0; g < group_; ++g) {
      for (int64_t row = 0; row < rows_; ++row) {
        const Bf16* from = d_o(g, row);
        const Bf16* out = in_.out + (from - in_.d_out);
        for (int64_t i = 0; i < d_; ++i) {
          a[static_cast<size_t>(i)] = numerics::bfloat16_to_float(from[i]);
          b[static_cast<size_t>(i)] = numerics::bfloat16_to_float(out[i]);
        }
        row_sums_[static_cast<size_t>(g * rows_ + row)] = numerics::row_dot(a.data(), b.data(), d_);
      }
    }
  }

  void key_block(int64_t key, Bf16* d_qkv) {
    const int64_t keys = std::min(kKeyBlock, rows_ - key);
    expand_keys_as_columns(k(key), in_.ld, keys, d_, keys_.data());
    expand_keys_as_columns(v(key), in_.ld, keys, d_, values_.data());
    expand_rows_as_steps(k(key), in_.ld, keys, d_, numerics::tc16_groups(keys), key_steps_.data());
    std::fill(dk_.begin(), dk_.end(), 0.0F);
    std::fill(dv_.begin(), dv_.end(), 0.0F);
    chunk_ = 0;
    for (int64_t g = 0; g < group_; ++g) {
      for (int64_t row = key; row < rows_; row += kQueries) tile(g, row, key, keys);
    }
    const float scale = attention_gradient_scale(d_);
    for (int64_t j = 0; j < keys; ++j) {
      float* dk = dk_.data() + j * padded_d_;
      float* dv = dv_.data() + j * padded_d_;
      if (chunk_ > 0) {
        for (int64_t i = 0; i < d_; ++i) dk[i] = dk_total_[static_cast<size_t>(j * padded_d_ + i)] + dk[i];
        for (int64_t i = 0; i < d_; ++i) dv[i] = dv_total_[static_cast<size_t>(j * padded_d_ + i)] + dv[i];
      }
      Bf16* to = d_qkv + (begin_ + key + j) * in_.ld + (in_.shape.heads + kv_head_) * d_;
      store(dk, scale, key + j, to);
      for (int64_t i = 0; i < d_; ++i) to[in_.shape.kv_heads * d_ + i] = numerics::float_to_bfloat16(dv[i]);
    }
  }

  // Queries [row, row + 64) of head g against the keys of the block.
  void tile(int64_t g, int64_t row, int64_t key, int64_t keys) {
    const int64_t queries = std::min(kQueries, rows_ - row);
    for (int64_t x = 0; x < queries; ++x) {
      numerics::tc16_expand_row(q(g, row + x), 1, d_, q_.data() + x * padded_d_);
      numerics::tc16_expand_row(d_o(g, row + x), 1, d_, d_o_.data() + x * padded_d_);
    }
    float s[kQueries * kKeyBlock] = {};
    float dp[kQueries * kKeyBlock] = {};
    for (int64_t t = 0; t * kColumns < keys; ++t) {
      tile_(q_.data(), padded_d_, queries, keys_.data() + t * groups_, groups_, s + t * kColumns, kKeyBlock);
      tile_(d_o_.data(), padded_d_, queries, values_.data() + t * groups_, groups_, dp + t * kColumns,
            kKeyBlock);
    }
    Bf16 p[kQueries * kKeyBlock] = {};  // +0 for keys after the row and rows past the sample
    Bf16 ds[kQueries * kKeyBlock] = {};
    for (int64_t x = 0; x < queries; ++x) {
      weigh(g, row + x, std::min(keys, row + x - key + 1), s + x * kKeyBlock, dp + x * kKeyBlock,
            p + x * kKeyBlock, ds + x * kKeyBlock);
    }
    // dQ: steps are the keys of the block.
    const int64_t key_groups = numerics::tc16_groups(keys);
    for (int64_t x = 0; x < queries; ++x) {
      numerics::tc16_expand_row(ds + x * kKeyBlock, 1, kKeyBlock, operand_.data() + x * kKeyBlock);
    }
    for (int64_t t = 0; t < groups_; ++t) {
      tile_(operand_.data(), kKeyBlock, queries, key_steps_.data() + t * key_groups, key_groups,
            dq_.data() + (g * rows_ + row) * padded_d_ + t * kColumns, padded_d_);
    }
    const int64_t padded = (rows_ + numerics::kTokenPad - 1) / numerics::kTokenPad * numerics::kTokenPad;
    const int64_t step = g * (padded - key) + (row - key);
    const int64_t steps = numerics::tc16_groups(queries) * kStep;
    const int64_t chunk = chunk_;
    key_chain(ds, q(g, row), in_.ld, queries, keys, step, steps, dk_.data(), dk_total_.data());
    chunk_ = chunk;
    key_chain(p, d_o(g, row), in_.shape.heads * d_, queries, keys, step, steps, dv_.data(), dv_total_.data());
  }

  void weigh(int64_t g, int64_t row, int64_t keys, const float* chain, const float* dp, Bf16* p,
             Bf16* ds) const {
    const int64_t at = (begin_ + row) * in_.shape.heads + kv_head_ * group_ + g;
    const float c = attention_score_scale(d_);
    const float max = in_.max_exponent[at];
    const float r = in_.inverse_sum[at];
    const float row_sum = row_sums_[static_cast<size_t>(g * rows_ + row)];
    for (int64_t j = 0; j < keys; ++j) {
      const float s = chain[j] * c;
      p[j] = numerics::float_to_bfloat16(attention_weight(s, numerics::round_even(s), max) * r);
    }
    for (int64_t j = 0; j < keys; ++j) {
      ds[j] = numerics::float_to_bfloat16(numerics::bfloat16_to_float(p[j]) * (dp[j] - row_sum));
    }
  }

  // chains [64, padded_d] of the block's keys go on over `steps` steps from number `step`: a [step][64 keys],
  // b [queries, d].
  void key_chain(const Bf16* a, const Bf16* b, int64_t ldb, int64_t queries, int64_t keys, int64_t step,
                 int64_t steps, float* chains, float* totals) {
    for (int64_t j = 0; j < keys; ++j) {
      numerics::tc16_expand_row(a + j, kKeyBlock, steps, operand_.data() + j * kQueries);
    }
    const int64_t tile_groups = steps / kStep;
    expand_rows_as_steps(b, ldb, queries, d_, tile_groups, tile_steps_.data());
    for (int64_t done = 0; done < steps;) {
      if ((step + done) / in_.chunk != chunk_) {
        for (int64_t i = 0; i < kKeyBlock * padded_d_; ++i) {
          totals[i] = chunk_ == 0 ? chains[i] : totals[i] + chains[i];
          chains[i] = 0.0F;
        }
        chunk_ = (step + done) / in_.chunk;
      }
      const int64_t here = std::min(steps - done, (chunk_ + 1) * in_.chunk - (step + done));
      for (int64_t t = 0; t < groups_; ++t) {
        tile_(operand_.data() + done, kQueries, keys, tile_steps_.data() + t * tile_groups + done / kStep,
              here / kStep, chains + t * kColumns, padded_d_);
      }
      done += here;
    }
  }

  // bf16(x * scale with RoPE undone).
  void store(float* x, float scale, int64_t row, Bf16* to) const {
    for (int64_t i = 0; i < d_; ++i) x[i] = x[i] * scale;
    const int64_t half = d_ / 2;
    if (in_.rope.cos != nullptr) {
      for (int64_t i = 0; i < half; ++i) {
        const float cosine = in_.rope.cos[row * half + i];
        const float sine = -in_.rope.sin[row * half + i];
        const float a = x[i];
        const float b = x[i + half];
        x[i] = std::fma(a, cosine, -(b * sine));
        x[i + half] = std::fma(b, cosine, a * sine);
      }
    }
    for (int64_t i = 0; i < d_; ++i) to[i] = numerics::float_to_bfloat16(x[i]);
  }

  numerics::Tc16Tile tile_;
  const BackwardInput& in_;
  int64_t d_, padded_d_, groups_, group_, kv_head_, begin_, rows_;
  int64_t chunk_ = 0;                                 // of the chains of the block at hand
  std::vector<Tc16RowElement> q_, d_o_;               // [64, padded_d] of the tile
  std::vector<Tc16ColumnGroup> keys_, values_;        // of the block, keys as columns
  std::vector<Tc16ColumnGroup> key_steps_;            // of the block, keys as steps
  std::vector<Tc16ColumnGroup> tile_steps_;           // of the tile, queries as steps
  std::vector<Tc16RowElement> operand_;               // [64, 64]
  std::vector<float> dq_, row_sums_;                  // [g, row, padded_d], [g, row]
  std::vector<float> dk_, dv_, dk_total_, dv_total_;  // [64, padded_d]
};

}  // namespace

void attention_backward_bf16_cpu(const cpu::Context& context, const AttentionShape& shape, const Bf16* qkv,
                                 int64_t ld, const Bf16* out, const Bf16* d_out, const float* max_exponent,
                                 const float* inverse_sum, const AttentionSample* samples, int64_t n_samples,
                                 const AttentionRope& rope, Bf16* d_qkv, int64_t chunk) {
  const BackwardInput in{shape, qkv, ld, out, d_out, max_exponent, inverse_sum, rope, chunk};
  const numerics::Tc16Tile tile = attention_tile_bf16(context);
  context.parallel_for(n_samples * shape.kv_heads, [&](int64_t i) {
    SampleTask(tile, in, i % shape.kv_heads, samples[i / shape.kv_heads]).run(d_qkv);
  });
}

}  // namespace lockstep::ops
