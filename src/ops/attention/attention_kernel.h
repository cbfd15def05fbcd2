// SPDX-License-Identifier: Apache-2.0
// Kernels of attention over a vector type V, for the CPU paths. Included only by the files that define a V in
// an unnamed namespace, so that code for different instruction sets never shares a symbol. Everything that is
// not a template lives in attention_tasks.h.
//
// V has: kWidth, kRows and kVectors (a tile of chains in registers), Reg; load, store, load_part, store_part,
// set1, add, sub, mul, fma, round (nearest even), max, highest (of the lanes), in_range (all |x| <
// kMaxScore), scale (p * 2^e, +0 where e < kWeightFloor; e is an integer <= 0) and add_lanes (n weights into
// kSoftmaxLanes lanes).
#pragma once

#include "ops/attention/attention_tasks.h"

namespace lockstep::ops {

// Up to the next multiple of 16 (all vector widths divide it); n <= 64, or beyond: 64.
template <typename T>
inline T padded(T n) {
  return n >= 64 ? 64 : (n + 15) / 16 * 16;
}

// c[r][:] = chain over t in [begin[r], end[r]) of fma(a[r][t], b[t][:], c[r][:]), ascending.
struct ChainTile {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t c_row;
  const int* begin;  // [rows]
  const int* end;    // [rows]
  bool from_zero;    // c starts from +0 (all rows then have one range)
};

// R rows, N vectors of columns; the last one holds `part` columns when kPart.
template <class V, int R, int N, bool kPart>
inline void chain_tile(const ChainTile& x, int64_t row, int64_t column, int64_t begin, int64_t end,
                       int64_t part) {
  typename V::Reg sum[R][N];
  float* c = x.c + row * x.c_row + column;
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < N; ++v) {
      if (x.from_zero) {
        sum[r][v] = V::set1(0.0F);
      } else if (kPart && v == N - 1) {
        sum[r][v] = V::load_part(c + r * x.c_row + v * V::kWidth, part);
      } else {
        sum[r][v] = V::load(c + r * x.c_row + v * V::kWidth);
      }
    }
  }
  const float* a = x.a + row * x.a_row + begin * x.a_step;
  const float* b = x.b + column + begin * x.b_step;
  for (int64_t t = begin; t < end; ++t, a += x.a_step, b += x.b_step) {
    typename V::Reg columns[N];
    for (int v = 0; v < N; ++v) {
      columns[v] = kPart && v == N - 1 ? V::load_part(b + v * V::kWidth, part) : V::load(b + v * V::kWidth);
    }
    for (int r = 0; r < R; ++r) {
      const typename V::Reg scalar = V::set1(a[r * x.a_row]);
      for (int v = 0; v < N; ++v) sum[r][v] = V::fma(scalar, columns[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < N; ++v) {
      if (kPart && v == N - 1) {
        V::store_part(c + r * x.c_row + v * V::kWidth, sum[r][v], part);
      } else {
        V::store(c + r * x.c_row + v * V::kWidth, sum[r][v]);
      }
    }
  }
}

// R rows at a time over N vectors of columns, then what is left with fewer. Rows go together over the steps
// they share.
template <class V, int R, int N, bool kPart>
inline void chain_panel(const ChainTile& x, int64_t row, int64_t rows, int64_t column, int64_t part) {
  for (; row + R <= rows; row += R) {
    int begin = x.begin[row];
    int end = x.end[row];
    for (int64_t r = row + 1; r < row + R; ++r) {
      begin = x.begin[r] > begin ? x.begin[r] : begin;
      end = x.end[r] < end ? x.end[r] : end;
    }
    end = end > begin ? end : begin;
    for (int64_t r = row; r < row + R; ++r) {
      if (x.begin[r] < begin) {
        const int own_end = x.end[r] < begin ? x.end[r] : begin;
        chain_tile<V, 1, N, kPart>(x, r, column, x.begin[r], own_end, part);
      }
    }
    if (begin < end || x.from_zero) chain_tile<V, R, N, kPart>(x, row, column, begin, end, part);
    for (int64_t r = row; r < row + R; ++r) {
      if (x.end[r] > end) chain_tile<V, 1, N, kPart>(x, r, column, end, x.end[r], part);
    }
  }
  if constexpr (R > 1) {
    if (row < rows) chain_panel<V, R - 1, N, kPart>(x, row, rows, column, part);
  }
}

// The last columns, fewer than a full panel.
template <class V, int N>
inline void chain_rest(const ChainTile& x, int64_t rows, int64_t column, int64_t columns) {
  const int64_t vectors = (columns + V::kWidth - 1) / V::kWidth;
  if constexpr (N > 0) {
    if (vectors < N) return chain_rest<V, N - 1>(x, rows, column, columns);
    const int64_t part = columns - (N - 1) * V::kWidth;
    if (part == V::kWidth) return chain_panel<V, V::kRows, N, false>(x, 0, rows, column, part);
    return chain_panel<V, V::kRows, N, true>(x, 0, rows, column, part);
  }
}

template <class V>
inline void chains(const ChainTile& x, int64_t rows, int64_t columns) {
  constexpr int64_t kPanel = V::kVectors * V::kWidth;
  int64_t column = 0;
  for (; column + kPanel <= columns; column += kPanel)
    chain_panel<V, V::kRows, V::kVectors, false>(x, 0, rows, column, V::kWidth);
  chain_rest<V, V::kVectors>(x, rows, column, columns - column);
}

// 2^f on [-1/2, 1/2]: numerics::exp2_fraction.
template <class V>
inline typename V::Reg exp2_fraction(typename V::Reg f) {
  typename V::Reg p = V::set1(numerics::kExp2Coefficients[0]);
  for (int i = 1; i <= numerics::kExp2Degree; ++i) p = V::fma(p, f, V::set1(numerics::kExp2Coefficients[i]));
  return p;
}

// The weights of 64 scores against the maximum: +0 below 2^kWeightFloor.
template <class V>
inline typename V::Reg weight(typename V::Reg s, typename V::Reg max) {
  const typename V::Reg n = V::round(s);
  return V::scale(exp2_fraction<V>(V::sub(s, n)), V::sub(n, max));
}

// Scores s of one query, of which `visible` count, times c; then weights in place up to the next multiple of
// 16 (+0 from `visible` on), and the state raised. False: a visible score is out of range.
template <class V>
inline bool softmax_block(float* s, int visible, float c, int64_t d, QueryState* state, float* o) {
  const typename V::Reg scale = V::set1(c);
  const int n = padded(visible);
  bool ok = true;
  for (int j = 0; j < n; j += V::kWidth) {
    const typename V::Reg x = V::mul(V::load(s + j), scale);
    V::store(s + j, x);
    ok &= j + V::kWidth > visible || V::in_range(x);
  }
  for (int j = visible - visible % V::kWidth; j < visible; ++j)
    ok &= s[j] < numerics::kMaxScore && s[j] > -numerics::kMaxScore;
  for (int j = visible; j < n; ++j) s[j] = kMaskedScore;
  if (!ok) return false;
  typename V::Reg highest = V::load(s);
  for (int j = V::kWidth; j < n; j += V::kWidth) highest = V::max(highest, V::load(s + j));
  // Rounding is monotonic: the largest n is the n of the largest score. M is an integer: -0 becomes +0.
  const float block_max = V::highest(V::round(highest)) + 0.0F;
  if (block_max > state->max) raise_state(block_max, d, state, o);
  const typename V::Reg max = V::set1(state->max);
  for (int j = 0; j < n; j += V::kWidth) V::store(s + j, weight<V>(V::load(s + j), max));
  V::add_lanes(state->lanes, s, n);
  return true;
}

// One segment of keys for the queries of a task (ForwardTask). States start fresh.
template <class V>
inline bool forward_segment(const ForwardTask& t, int64_t segment) {
  const int64_t d = t.head_size;
  int begin[kQueryTile];
  int end[kQueryTile];
  for (int x = 0; x < kQueryTile; ++x) begin[x] = 0;
  const int64_t first_block = segment * kSegmentBlocks;
  const int64_t last_position = t.first_position + t.rows - 1;
  for (int64_t block = first_block; block < first_block + kSegmentBlocks && block * 64 <= last_position;
       ++block) {
    const int64_t first_row = block * 64 > t.first_position ? block * 64 - t.first_position : 0;
    const int64_t queries = t.rows * t.group;
    for (int64_t first = first_row * t.group; first < queries; first += kQueryTile) {
      const int64_t count = queries - first < kQueryTile ? queries - first : kQueryTile;
      for (int64_t x = 0; x < count; ++x) end[x] = static_cast<int>(d);
      const int64_t most =
          t.first_position + (first + count - 1) / t.group + 1 - block * 64;  // the last one sees
      chains<V>({t.q + first * d, d, 1, t.k_blocks[block] + t.kv_offset, 64, t.scores, 64, begin, end, true},
                count, padded(most));
      for (int64_t x = 0; x < count; ++x) {
        const int64_t seen = t.first_position + (first + x) / t.group + 1 - block * 64;
        end[x] = static_cast<int>(seen < 64 ? seen : 64);
        if (!softmax_block<V>(t.scores + x * 64, end[x], t.scale, d, t.states + first + x,
                              t.o + (first + x) * d)) {
          return false;
        }
      }
      chains<V>({t.scores, 64, 1, t.v_blocks[block] + t.kv_offset, d, t.o + first * d, d, begin, end, false},
                count, d);
    }
  }
  return true;
}

// P and dS of row `row` of a tile of queries x 64 keys, from s (in p) and dP (in ds); the first `visible`
// keys.
template <class V>
inline void backward_weights(const BackwardTask& t, float max, float inverse_sum, float row_sum,
                             int64_t visible, float* p, float* ds) {
  const typename V::Reg scale = V::set1(t.scale);
  const typename V::Reg m = V::set1(max);
  const typename V::Reg inverse = V::set1(inverse_sum);
  const typename V::Reg sum = V::set1(row_sum);
  for (int64_t j = 0; j < visible; j += V::kWidth) {
    const typename V::Reg x = V::mul(weight<V>(V::mul(V::load(p + j), scale), m), inverse);
    V::store(p + j, x);
    V::store(ds + j, V::mul(x, V::sub(V::load(ds + j), sum)));
  }
}

// One tile: queries [query, query + rows) of head g against keys [key, key + keys), those of the block in the
// task. Adds to dq, dk, dv. Chains of keys are cut where a chunk ends.
template <class V>
inline void backward_tile(const BackwardTask& t, int64_t g, int64_t query, int64_t rows, int64_t key,
                          int64_t keys) {
  const int64_t d = t.head_size;
  const float* q = t.q + (g * t.rows + query) * d;
  const float* d_out = t.d_out + (g * t.rows + query) * d;
  const float* row_sums = t.row_sums + g * t.rows + query;
  const bool diagonal = query == key;
  int zero[64];
  int begin[64];
  int end[64];
  for (int x = 0; x < 64; ++x) zero[x] = 0;
  for (int x = 0; x < 64; ++x) end[x] = static_cast<int>(d);
  for (int64_t x = 0; x < rows; x += 16) {  // on the diagonal, a row needs keys up to its own only
    const int64_t count = rows - x < 16 ? rows - x : 16;
    const int64_t columns = diagonal ? padded(x + count) : padded(keys);
    chains<V>({q + x * d, d, 1, t.k_columns, 64, t.p + x * 64, 64, zero, end, true}, count, columns);
    chains<V>({d_out + x * d, d, 1, t.v_columns, 64, t.ds + x * 64, 64, zero, end, true}, count, columns);
  }
  for (int64_t x = 0; x < rows; ++x) {
    const int64_t at = (query + x) * t.heads + t.first_head + g;
    end[x] = static_cast<int>(diagonal ? x + 1 : keys);
    backward_weights<V>(t, t.max_exponent[at], t.inverse_sum[at], row_sums[x], end[x], t.p + x * 64,
                        t.ds + x * 64);
  }
  chains<V>({t.ds, 64, 1, t.k_rows, d, t.dq + (g * t.rows + query) * d, d, zero, end, false}, rows, d);

  const int64_t first_step = g * (t.padded_rows - key) + query - key;
  for (int64_t from = 0; from < rows;) {
    const int64_t step = first_step + from;
    if (step > 0 && step % numerics::kGradientChunk == 0) end_chunk(t, step);
    const int64_t left = numerics::kGradientChunk - step % numerics::kGradientChunk;
    const int64_t to = rows - from < left ? rows : from + left;
    for (int64_t x = 0; x < keys; ++x) {
      end[x] = static_cast<int>(to);
      begin[x] = static_cast<int>(diagonal && x > from ? (x < to ? x : to) : from);
    }
    chains<V>({t.p, 1, 64, d_out, d, t.dv, d, begin, end, false}, keys, d);
    chains<V>({t.ds, 1, 64, q, d, t.dk, d, begin, end, false}, keys, d);
    from = to;
  }
}

}  // namespace lockstep::ops
