// SPDX-License-Identifier: Apache-2.0
// The forward pass.
#include "ops/attention/attention_bf16_cpu.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "ops/attention/attention_bf16_tile.h"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::kAttentionSegment;
using numerics::kKeyBlock;
using numerics::kSoftmaxLanes;
using numerics::Tc16ColumnGroup;
using numerics::Tc16RowElement;

constexpr int64_t kRows = 16;  // of a run a task
constexpr int64_t kColumns = numerics::kTc16Columns;
constexpr int64_t kKeyTiles = kKeyBlock / kColumns;
constexpr int64_t kKeyGroups = kKeyBlock / numerics::kTc16Products;

// Of one query: sums over a segment or over all segments so far. M undefined: max is kNone.
constexpr int kNone = INT32_MIN;
struct State {
  int max;
  float lanes[kSoftmaxLanes];  // lanes[0] is l after the segment
};

float scaled(float x, int e) {
  return e < -126 ? 0.0F : numerics::scale_by_pow2(x, e);
}

// Rows of one run and the query heads of one key/value head. Query x is row x / group, head x % group.
class ForwardTask {
 public:
  ForwardTask(numerics::Tc16Tile tile, const AttentionShape& shape, const AttentionRunBf16& run,
              int64_t kv_head, int64_t first_row, int64_t rows)
      : tile_(tile),
        run_(run),
        d_(shape.head_size),
        padded_((shape.head_size + kColumns - 1) / kColumns * kColumns),
        group_(shape.heads / shape.kv_heads),
        kv_head_(kv_head),
        first_(run.first_position + first_row),
        queries_(rows * group_),
        c_(attention_score_scale(shape.head_size)),
        q_(static_cast<size_t>(queries_ * padded_)),
        weights_(static_cast<size_t>(queries_ * kKeyBlock)),
        keys_(static_cast<size_t>(kKeyTiles * padded_ / kColumns)),
        values_(static_cast<size_t>(padded_ / kColumns * kKeyGroups)),
        scores_(static_cast<size_t>(queries_ * kKeyBlock)),
        state_(static_cast<size_t>(queries_)),
        total_(static_cast<size_t>(queries_)),
        o_(static_cast<size_t>(queries_ * padded_)),
        total_o_(static_cast<size_t>(queries_ * padded_)) {}

  // q: of query 0. False: a score is out of range.
  bool run(const Bf16* q, int64_t ldq) {
    for (int64_t x = 0; x < queries_; ++x) {
      numerics::tc16_expand_row(q + x / group_ * ldq + x % group_ * d_, 1, d_, q_.data() + x * padded_);
    }
    const int64_t end = position(queries_ - 1) + 1;
    for (int64_t key = 0; key < end; key += kAttentionSegment) {
      std::fill(o_.begin(), o_.end(), 0.0F);
      std::fill(state_.begin(), state_.end(), State{kNone, {}});
      for (int64_t block = key; block < std::min(end, key + kAttentionSegment); block += kKeyBlock) {
        if (!keys_of(block, end)) return false;
      }
      end_segment(key);
    }
    return true;
  }

  void finish(Bf16* out, int64_t ldo, float* max_exponent, float* inverse_sum, int64_t heads) const {
    for (int64_t x = 0; x < queries_; ++x) {
      const State& state = total_[static_cast<size_t>(x)];
      const float r = 1.0F / state.lanes[0];
      Bf16* to = out + x / group_ * ldo + x % group_ * d_;
      for (int64_t i = 0; i < d_; ++i) {
        to[i] = numerics::float_to_bfloat16(total_o_[static_cast<size_t>(x * padded_ + i)] * r);
      }
      const int64_t at = x / group_ * heads + x % group_;
      if (max_exponent != nullptr) max_exponent[at] = static_cast<float>(state.max);
      if (inverse_sum != nullptr) inverse_sum[at] = r;
    }
  }

 private:
  int64_t position(int64_t query) const { return first_ + query / group_; }

  bool keys_of(int64_t block, int64_t end) {
    const int64_t keys = std::min(kKeyBlock, end - block);
    // Queries from this one on see a key of the block.
    const int64_t from = std::max<int64_t>(0, block - first_) * group_;
    const int64_t count = queries_ - from;
    const Bf16* k = run_.k_blocks[block / kKeyBlock] + kv_head_ * kKeyBlock * d_;
    const Bf16* v = run_.v_blocks[block / kKeyBlock] + kv_head_ * kKeyBlock * d_;
    expand_keys_as_columns(k, d_, keys, d_, keys_.data());
    const int64_t groups = padded_ / kColumns;
    float* scores = scores_.data() + from * kKeyBlock;
    std::fill(scores, scores + count * kKeyBlock, 0.0F);
    for (int64_t t = 0; t * kColumns < keys; ++t) {
      tile_(q_.data() + from * padded_, padded_, count, keys_.data() + t * groups, groups,
            scores + t * kColumns, kKeyBlock);
    }
    for (int64_t x = from; x < queries_; ++x) {
      if (!weigh(x, std::min(keys, position(x) - block + 1))) return false;
    }
    const int64_t key_groups = numerics::tc16_groups(keys);
    expand_rows_as_steps(v, d_, keys, d_, key_groups, values_.data());
    for (int64_t t = 0; t < groups; ++t) {
      tile_(weights_.data() + from * kKeyBlock, kKeyBlock, count, values_.data() + t * key_groups, key_groups,
            o_.data() + from * padded_ + t * kColumns, padded_);
    }
    return true;
  }

  // The scores of a query's visible keys to weights; raises M, adds to l.
  bool weigh(int64_t x, int64_t keys) {
    const float* chain = scores_.data() + x * kKeyBlock;
    State& state = state_[static_cast<size_t>(x)];
    float s[kKeyBlock];
    float n[kKeyBlock];
    bool usable = true;
    float highest = -numerics::kMaxScore;
    for (int64_t j = 0; j < keys; ++j) {
      s[j] = chain[j] * c_;
      usable = usable && std::abs(s[j]) < numerics::kMaxScore;
    }
    if (!usable) return false;
    for (int64_t j = 0; j < keys; ++j) n[j] = numerics::round_even(s[j]);
    for (int64_t j = 0; j < keys; ++j) highest = std::max(highest, n[j]);
    const int block_max = static_cast<int>(highest);
    if (state.max == kNone) {
      state.max = block_max;
    } else if (block_max > state.max) {
      for (float& lane : state.lanes) lane = scaled(lane, state.max - block_max);
      float* o = o_.data() + x * padded_;
      for (int64_t i = 0; i < padded_; ++i) o[i] = scaled(o[i], state.max - block_max);
      state.max = block_max;
    }
    const float max = static_cast<float>(state.max);
    float p[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) p[j] = attention_weight(s[j], n[j], max);
    Bf16 rounded[kKeyBlock] = {};
    for (int64_t j = 0; j < keys; ++j) rounded[j] = numerics::float_to_bfloat16(p[j]);
    for (int64_t j = 0; j < keys; ++j) state.lanes[j % kSoftmaxLanes] = state.lanes[j % kSoftmaxLanes] + p[j];
    numerics::tc16_expand_row(rounded, 1, kKeyBlock, weights_.data() + x * kKeyBlock);
    return true;
  }

  void end_segment(int64_t first_key) {
    for (int64_t x = 0; x < queries_; ++x) {
      State& next = state_[static_cast<size_t>(x)];
      if (next.max == kNone) continue;  // sees no key of the segment
      for (int width = 1; width < kSoftmaxLanes; width *= 2) {
        for (int i = 0; i < kSoftmaxLanes; i += 2 * width)
          next.lanes[i] = next.lanes[i] + next.lanes[i + width];
      }
      State& state = total_[static_cast<size_t>(x)];
      float* to = total_o_.data() + x * padded_;
      const float* from = o_.data() + x * padded_;
      if (first_key == 0) {
        state = next;
        std::copy_n(from, padded_, to);
        continue;
      }
      const int max = std::max(state.max, next.max);
      for (int64_t i = 0; i < d_; ++i)
        to[i] = scaled(to[i], state.max - max) + scaled(from[i], next.max - max);
      state.lanes[0] = scaled(state.lanes[0], state.max - max) + scaled(next.lanes[0], next.max - max);
      state.max = max;
    }
  }

  numerics::Tc16Tile tile_;
  const AttentionRunBf16& run_;
  int64_t d_, padded_, group_, kv_head_, first_, queries_;
  float c_;
  std::vector<Tc16RowElement> q_;        // [query, padded]
  std::vector<Tc16RowElement> weights_;  // [query, 64]
  std::vector<Tc16ColumnGroup> keys_, values_;
  std::vector<float> scores_;  // [query, 64]: chains of q.k
  std::vector<State> state_, total_;
  std::vector<float> o_, total_o_;  // [query, padded]
};

}  // namespace

bool attention_forward_bf16_cpu(const cpu::Context& context, const AttentionShape& shape, const Bf16* q,
                                int64_t ldq, const AttentionRunBf16* runs, int64_t n_runs, Bf16* out,
                                int64_t ldo, float* max_exponent, float* inverse_sum) {
  struct Piece {
    int64_t run, first;
  };
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < n_runs; ++i) {
    for (int64_t row = 0; row < runs[i].rows; row += kRows) pieces.push_back({i, row});
  }
  // The longest first: late rows see the most keys.
  std::reverse(pieces.begin(), pieces.end());
  const numerics::Tc16Tile tile = attention_tile_bf16(context);
  const int64_t group = shape.heads / shape.kv_heads;
  std::atomic<bool> ok{true};
  context.parallel_for(static_cast<int64_t>(pieces.size()) * shape.kv_heads, [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i / shape.kv_heads)];
    const int64_t kv_head = i % shape.kv_heads;
    const AttentionRunBf16& run = runs[piece.run];
    const int64_t row = run.first_row + piece.first;
    const int64_t head = kv_head * group;
    ForwardTask task(tile, shape, run, kv_head, piece.first, std::min(kRows, run.rows - piece.first));
    if (!task.run(q + row * ldq + head * shape.head_size, ldq)) {
      ok = false;
      return;
    }
    task.finish(out + row * ldo + head * shape.head_size, ldo,
                max_exponent == nullptr ? nullptr : max_exponent + row * shape.heads + head,
                inverse_sum == nullptr ? nullptr : inverse_sum + row * shape.heads + head, shape.heads);
  });
  return ok;
}

}  // namespace lockstep::ops
