// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/constants.h"
#include "numerics/math.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace {

using numerics::kAttentionSegment;
using numerics::kKeyBlock;
using numerics::kSoftmaxLanes;

// Sums over the keys of one segment: o and l are to be divided by 2^-max.
struct State {
  bool defined = false;  // a key was seen
  int max = 0;           // M
  float l = 0.0F;
  std::vector<float> o;
};

// x * 2^e; +0 when e < -126.
float scaled(float x, int e) {
  return e < -126 ? 0.0F : numerics::scale_by_pow2(x, e);
}

// Keys [first, end) of one query and head: q [d], k_blocks and v_blocks of the sequence at kv_head. False: a
// score is out of range.
bool segment(const AttentionShape& shape, const float* q, const AttentionRun& run, int64_t kv_head,
             int64_t first, int64_t end, State* state) {
  const int64_t d = shape.head_size;
  const float c = attention_score_scale(d);
  float lanes[kSoftmaxLanes] = {};
  state->o.assign(d, 0.0F);
  for (int64_t block = first / kKeyBlock; block * kKeyBlock < end; ++block) {
    const float* k = run.k_blocks[block] + kv_head * d * kKeyBlock;
    const float* v = run.v_blocks[block] + kv_head * d * kKeyBlock;
    const int64_t keys = std::min(kKeyBlock, end - block * kKeyBlock);
    float s[kKeyBlock];
    int n[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) {
      float dot = 0.0F;
      for (int64_t i = 0; i < d; ++i) dot = std::fma(q[i], k[i * kKeyBlock + j], dot);
      s[j] = dot * c;
      if (!(std::abs(s[j]) < numerics::kMaxScore)) return false;
      n[j] = static_cast<int>(numerics::round_even(s[j]));
    }
    const int block_max = *std::max_element(n, n + keys);
    if (!state->defined || block_max > state->max) {
      if (state->defined) {
        for (float& x : lanes) x = scaled(x, state->max - block_max);
        for (float& x : state->o) x = scaled(x, state->max - block_max);
      }
      state->max = block_max;
      state->defined = true;
    }
    for (int64_t j = 0; j < keys; ++j) {
      const int e = n[j] - state->max;
      const float p =
          e < numerics::kWeightFloor
              ? 0.0F
              : numerics::scale_by_pow2(numerics::exp2_fraction(s[j] - static_cast<float>(n[j])), e);
      lanes[j % kSoftmaxLanes] = lanes[j % kSoftmaxLanes] + p;
      for (int64_t i = 0; i < d; ++i) state->o[i] = std::fma(p, v[j * d + i], state->o[i]);
    }
  }
  for (int width = 1; width < kSoftmaxLanes; width *= 2) {
    for (int i = 0; i < kSoftmaxLanes; i += 2 * width) lanes[i] = lanes[i] + lanes[i + width];
  }
  state->l = lanes[0];
  return true;
}

void merge(const State& next, State* state) {
  const int max = std::max(state->max, next.max);
  for (size_t i = 0; i < state->o.size(); ++i)
    state->o[i] = scaled(state->o[i], state->max - max) + scaled(next.o[i], next.max - max);
  state->l = scaled(state->l, state->max - max) + scaled(next.l, next.max - max);
  state->max = max;
}

}  // namespace

bool attention_forward_ref(const AttentionShape& shape, const float* q, int64_t ldq, const AttentionRun* runs,
                           int64_t n_runs, float* out, int64_t ldo, float* max_exponent, float* inverse_sum) {
  const int64_t d = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  for (const AttentionRun* run = runs; run < runs + n_runs; ++run) {
    for (int64_t i = 0; i < run->rows; ++i) {
      const int64_t row = run->first_row + i;
      const int64_t keys = run->first_position + i + 1;
      for (int64_t head = 0; head < shape.heads; ++head) {
        const float* query = q + row * ldq + head * d;
        State state;
        for (int64_t first = 0; first < keys; first += kAttentionSegment) {
          State next;
          const int64_t end = std::min(first + kAttentionSegment, keys);
          if (!segment(shape, query, *run, head / group, first, end, &next)) return false;
          if (first == 0) {
            state = next;
          } else {
            merge(next, &state);
          }
        }
        const float r = 1.0F / state.l;
        for (int64_t x = 0; x < d; ++x) out[row * ldo + head * d + x] = state.o[x] * r;
        if (max_exponent != nullptr) max_exponent[row * shape.heads + head] = static_cast<float>(state.max);
        if (inverse_sum != nullptr) inverse_sum[row * shape.heads + head] = r;
      }
    }
  }
  return true;
}

}  // namespace lockstep::ops
