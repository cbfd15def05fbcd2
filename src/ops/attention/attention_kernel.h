// SPDX-License-Identifier: Apache-2.0
// Kernels of attention over a vector type V, for the CPU paths. Included only by the files that define a V in
// an unnamed namespace, so that code for different instruction sets never shares a symbol. Everything that is
// not a template lives in attention_tasks.h.
//
// V has: kWidth, kRows (rows of a tile), Reg; load, store, load_part, store_part, set1, add, sub, mul, fma,
// round (nearest even), max, highest (of the lanes), in_range (all |x| < kMaxScore), scale (p * 2^e, +0
// where e < kWeightFloor; e is an integer <= 0) and add_lanes (64 weights into kSoftmaxLanes lanes).
#pragma once

#include "ops/attention/attention_tasks.h"

namespace lockstep::ops {

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

// All rows over N vectors of columns. Rows go together over the steps they share.
template <class V, int N, bool kPart>
inline void chain_panel(const ChainTile& x, int64_t rows, int64_t column, int64_t part) {
  constexpr int R = V::kRows;
  int64_t row = 0;
  for (; row + R <= rows; row += R) {
    int begin = x.begin[row];
    int end = x.end[row];
    for (int r = 1; r < R; ++r) {
      begin = x.begin[row + r] > begin ? x.begin[row + r] : begin;
      end = x.end[row + r] < end ? x.end[row + r] : end;
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
  for (; row < rows; ++row) chain_tile<V, 1, N, kPart>(x, row, column, x.begin[row], x.end[row], part);
}

template <class V>
inline void chains(const ChainTile& x, int64_t rows, int64_t columns) {
  constexpr int64_t W = V::kWidth;
  int64_t column = 0;
  for (; column + 4 * W <= columns; column += 4 * W) chain_panel<V, 4, false>(x, rows, column, W);
  const int64_t part = (columns - column) % W;
  switch ((columns - column) / W) {
    case 0:
      if (part > 0) chain_panel<V, 1, true>(x, rows, column, part);
      break;
    case 1:
      part > 0 ? chain_panel<V, 2, true>(x, rows, column, part)
               : chain_panel<V, 1, false>(x, rows, column, W);
      break;
    case 2:
      part > 0 ? chain_panel<V, 3, true>(x, rows, column, part)
               : chain_panel<V, 2, false>(x, rows, column, W);
      break;
    default:
      part > 0 ? chain_panel<V, 4, true>(x, rows, column, part)
               : chain_panel<V, 3, false>(x, rows, column, W);
  }
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

// Scores s[64] of one query, of which `visible` count, times c; then weights in place, and the state raised.
// False: a visible score is out of range.
template <class V>
inline bool softmax_block(float* s, int visible, float c, int64_t d, QueryState* state, float* o) {
  const typename V::Reg scale = V::set1(c);
  bool ok = true;
  for (int j = 0; j < 64; j += V::kWidth) {
    const typename V::Reg x = V::mul(V::load(s + j), scale);
    V::store(s + j, x);
    ok &= visible < 64 || V::in_range(x);
  }
  if (visible < 64) {
    for (int j = 0; j < visible; ++j) ok &= s[j] < numerics::kMaxScore && s[j] > -numerics::kMaxScore;
    for (int j = visible; j < 64; ++j) s[j] = kMaskedScore;
  }
  if (!ok) return false;
  typename V::Reg highest = V::load(s);
  for (int j = V::kWidth; j < 64; j += V::kWidth) highest = V::max(highest, V::load(s + j));
  // Rounding is monotonic: the largest n is the n of the largest score. M is an integer: -0 becomes +0.
  const float block_max = V::highest(V::round(highest)) + 0.0F;
  if (block_max > state->max) raise_state(block_max, d, state, o);
  const typename V::Reg max = V::set1(state->max);
  for (int j = 0; j < 64; j += V::kWidth) V::store(s + j, weight<V>(V::load(s + j), max));
  V::add_lanes(state->lanes, s);
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
      chains<V>({t.q + first * d, d, 1, t.k_blocks[block] + t.kv_offset, 64, t.scores, 64, begin, end, true},
                count, 64);
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

// P and dS of one tile of queries x 64 keys, from s (in p) and dP (in ds); rows of the tile: see
// BackwardTask.
template <class V>
inline void backward_weights(const BackwardTask& t, const float* max, const float* r, const float* row_sum,
                             int64_t rows) {
  const typename V::Reg scale = V::set1(t.scale);
  for (int64_t row = 0; row < rows; ++row) {
    const typename V::Reg m = V::set1(max[row * t.heads]);
    const typename V::Reg inverse = V::set1(r[row * t.heads]);
    const typename V::Reg sum = V::set1(row_sum[row]);
    float* p = t.p + row * 64;
    float* ds = t.ds + row * 64;
    for (int j = 0; j < 64; j += V::kWidth) {
      const typename V::Reg x = V::mul(weight<V>(V::mul(V::load(p + j), scale), m), inverse);
      V::store(p + j, x);
      V::store(ds + j, V::mul(x, V::sub(V::load(ds + j), sum)));
    }
  }
}

// One tile: queries [query, query + rows) of head g against keys [key, key + keys), keys packed by columns.
// Gradients accumulate in d_qkv. Chains of keys are cut where a chunk ends.
template <class V>
inline void backward_tile(const BackwardTask& t, int64_t g, int64_t query, int64_t rows, int64_t key,
                          int64_t keys) {
  const int64_t d = t.head_size;
  const int64_t head = t.first_head + g;
  const float* q = t.q + query * t.ld + g * d;
  const float* d_out = t.d_out + query * t.ld_out + g * d;
  int zero[64];
  int begin[64];
  int end[64];
  for (int x = 0; x < 64; ++x) zero[x] = 0;
  for (int x = 0; x < 64; ++x) end[x] = static_cast<int>(d);
  chains<V>({q, t.ld, 1, t.k_columns, 64, t.p, 64, zero, end, true}, rows, 64);
  chains<V>({d_out, t.ld_out, 1, t.v_columns, 64, t.ds, 64, zero, end, true}, rows, 64);
  backward_weights<V>(t, t.max_exponent + query * t.heads + head, t.inverse_sum + query * t.heads + head,
                      t.row_sums + g * t.rows + query, rows);
  const bool diagonal = query == key;
  for (int64_t x = 0; x < rows; ++x) end[x] = static_cast<int>(diagonal ? x + 1 : keys);
  chains<V>({t.ds, 64, 1, t.k + key * t.ld, t.ld, t.dq + query * t.ld + g * d, t.ld, zero, end, false}, rows,
            d);

  const int64_t first_step = g * (t.padded_rows - key) + query - key;
  for (int64_t from = 0; from < rows;) {
    const int64_t step = first_step + from;
    if (step > 0 && step % numerics::kGradientChunk == 0) end_chunk(t, key, keys, step);
    const int64_t left = numerics::kGradientChunk - step % numerics::kGradientChunk;
    const int64_t to = rows - from < left ? rows : from + left;
    for (int64_t x = 0; x < keys; ++x) {
      end[x] = static_cast<int>(to);
      begin[x] = static_cast<int>(diagonal && x > from ? (x < to ? x : to) : from);
    }
    chains<V>({t.p, 1, 64, d_out, t.ld_out, t.dv + key * t.ld, t.ld, begin, end, false}, keys, d);
    chains<V>({t.ds, 1, 64, q, t.ld, t.dk + key * t.ld, t.ld, begin, end, false}, keys, d);
    from = to;
  }
}

}  // namespace lockstep::ops
