// SPDX-License-Identifier: Apache-2.0
// Tasks: (run, piece of its rows, key/value head); when these are few and the keys many, (..., segment of
// keys) as well. Segments start fresh by definition, so cutting there changes no bit.
#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "core/buffer.h"
#include "ops/attention/attention_scale.h"
#include "ops/attention/attention_tasks.h"

namespace lockstep::ops {
namespace {

using numerics::kAttentionSegment;
using numerics::kKeyBlock;
using numerics::kSoftmaxLanes;

constexpr int64_t kQueriesPerTask = 128;

// x * 2^e for e <= 0; +0 when e < -126.
void scale_down(float e, int64_t n, float* x) {
  if (e < -126.0F) {
    std::fill(x, x + n, 0.0F);
  } else {
    const float factor = std::bit_cast<float>((static_cast<int32_t>(e) + 127) << 23);
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] * factor;
  }
}

void fold_lanes(QueryState* state) {
  for (int width = 1; width < kSoftmaxLanes; width *= 2) {
    for (int i = 0; i < kSoftmaxLanes; i += 2 * width)
      state->lanes[i] = state->lanes[i] + state->lanes[i + width];
  }
}

// `next` (folded) into `state`. Scales both; next_o is used up.
void merge(QueryState* next, float* next_o, int64_t d, QueryState* state, float* o) {
  const float max = std::max(state->max, next->max);
  scale_down(state->max - max, d, o);
  scale_down(state->max - max, 1, state->lanes);
  scale_down(next->max - max, d, next_o);
  scale_down(next->max - max, 1, next->lanes);
  for (int64_t i = 0; i < d; ++i) o[i] = o[i] + next_o[i];
  state->lanes[0] = state->lanes[0] + next->lanes[0];
  state->max = max;
}

struct Output {
  const AttentionShape* shape;
  float* out;
  int64_t ldo;
  float* max_exponent;
  float* inverse_sum;
};

// Rows [first_row, first_row + rows) of the run for one key/value head.
struct Piece {
  const AttentionRun* run;
  int64_t first_row, rows, kv_head;
  int64_t segments() const {
    return (run->first_position + first_row + rows + kAttentionSegment - 1) / kAttentionSegment;
  }
};

void write_query(const Output& output, const Piece& piece, int64_t x, const QueryState& state,
                 const float* o) {
  const int64_t d = output.shape->head_size;
  const int64_t group = output.shape->heads / output.shape->kv_heads;
  const int64_t row = piece.run->first_row + piece.first_row + x / group;
  const int64_t head = piece.kv_head * group + x % group;
  const float r = 1.0F / state.lanes[0];
  float* out = output.out + row * output.ldo + head * d;
  for (int64_t i = 0; i < d; ++i) out[i] = o[i] * r;
  if (output.max_exponent != nullptr) output.max_exponent[row * output.shape->heads + head] = state.max;
  if (output.inverse_sum != nullptr) output.inverse_sum[row * output.shape->heads + head] = r;
}

// Memory of one piece: queries copied together, and the state of some segments (slots).
class Workspace {
 public:
  void prepare(const AttentionShape& shape, const float* q, int64_t ldq, const Piece& piece,
               int64_t segments) {
    const int64_t d = shape.head_size;
    const int64_t group = shape.heads / shape.kv_heads;
    queries_ = piece.rows * group;
    d_ = d;
    q_.ensure(queries_ * d);
    o_.ensure(segments * queries_ * d);
    states_.ensure(segments * queries_);
    for (int64_t row = 0; row < piece.rows; ++row) {
      const float* in = q + (piece.run->first_row + piece.first_row + row) * ldq + piece.kv_head * group * d;
      std::copy(in, in + group * d, q_.data() + row * group * d);
    }
    task_ = {d,
             group,
             piece.rows,
             piece.run->first_position + piece.first_row,
             attention_score_scale(d),
             q_.data(),
             piece.run->k_blocks,
             piece.run->v_blocks,
             piece.kv_head * d * kKeyBlock,
             nullptr,
             nullptr,
             nullptr};
  }

  // Computes `segment` into slot `slot`; other slots may be worked on at the same time.
  bool segment(ForwardSegment kernel, int64_t segment, int64_t slot) {
    thread_local Buffer<float> scores(kQueryTile * kKeyBlock);
    ForwardTask task = task_;
    task.scores = scores.data();
    task.states = states(slot);
    task.o = o(slot);
    for (int64_t x = 0; x < queries_; ++x) task.states[x] = {kNoMax, {}};
    std::fill(task.o, task.o + queries_ * d_, 0.0F);
    if (!kernel(task, segment)) return false;
    for (int64_t x = 0; x < queries_; ++x) fold_lanes(task.states + x);
    return true;
  }

  // Merges slot `next` into slot `slot`, queries that saw a key of it only.
  void merge_into(int64_t next, int64_t slot) {
    for (int64_t x = 0; x < queries_; ++x) {
      if (states(next)[x].max == kNoMax) continue;
      merge(states(next) + x, o(next) + x * d_, d_, states(slot) + x, o(slot) + x * d_);
    }
  }

  void write(const Output& output, const Piece& piece) const {
    for (int64_t x = 0; x < queries_; ++x) write_query(output, piece, x, states_[x], o_.data() + x * d_);
  }

 private:
  QueryState* states(int64_t slot) { return states_.data() + slot * queries_; }
  float* o(int64_t slot) { return o_.data() + slot * queries_ * d_; }

  int64_t queries_ = 0;
  int64_t d_ = 0;
  Buffer<float> q_, o_;
  Buffer<QueryState> states_;
  ForwardTask task_{};
};

}  // namespace

void raise_state(float max, int64_t d, QueryState* state, float* o) {
  if (state->max != kNoMax) {
    scale_down(state->max - max, d, o);
    scale_down(state->max - max, kSoftmaxLanes, state->lanes);
  }
  state->max = max;
}

bool attention_forward_cpu(const cpu::Context& context, const AttentionShape& shape, const float* q,
                           int64_t ldq, const AttentionRun* runs, int64_t n_runs, float* out, int64_t ldo,
                           float* max_exponent, float* inverse_sum) {
  const ForwardSegment kernel = attention_kernels(context.isa()).forward_segment;
  const Output output{&shape, out, ldo, max_exponent, inverse_sum};
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t rows_per_piece = std::max<int64_t>(1, kQueriesPerTask / group);
  std::vector<Piece> pieces;
  std::vector<int64_t> first_segment{0};  // of each piece in a list of all
  for (const AttentionRun* run = runs; run < runs + n_runs; ++run) {
    for (int64_t row = 0; row < run->rows; row += rows_per_piece) {
      for (int64_t kv = 0; kv < shape.kv_heads; ++kv) {
        pieces.push_back({run, row, std::min(rows_per_piece, run->rows - row), kv});
        first_segment.push_back(first_segment.back() + pieces.back().segments());
      }
    }
  }
  const auto n_pieces = static_cast<int64_t>(pieces.size());
  std::atomic<bool> ok = true;
  if (n_pieces >= 4 * context.threads() || first_segment.back() == n_pieces) {
    context.parallel_for(n_pieces, [&](int64_t i) {
      thread_local Workspace work;
      work.prepare(shape, q, ldq, pieces[i], 2);
      for (int64_t s = 0; s < pieces[i].segments(); ++s) {
        if (!work.segment(kernel, s, s == 0 ? 0 : 1)) {
          ok = false;
          return;
        }
        if (s > 0) work.merge_into(1, 0);
      }
      work.write(output, pieces[i]);
    });
    return ok;
  }

  std::vector<Workspace> work(pieces.size());
  for (int64_t i = 0; i < n_pieces; ++i) work[i].prepare(shape, q, ldq, pieces[i], pieces[i].segments());
  context.parallel_for(first_segment.back(), [&](int64_t task) {
    const int64_t i =
        std::upper_bound(first_segment.begin(), first_segment.end(), task) - first_segment.begin() - 1;
    const int64_t s = task - first_segment[i];
    if (!work[i].segment(kernel, s, s)) ok = false;
  });
  if (!ok) return false;
  context.parallel_for(n_pieces, [&](int64_t i) {
    for (int64_t s = 1; s < pieces[i].segments(); ++s) work[i].merge_into(s, 0);
    work[i].write(output, pieces[i]);
  });
  return true;
}

}  // namespace lockstep::ops
