// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/math.h"
#include "numerics/tc16.h"
#include "ops/attention/attention_bf16.h"
#include "ops/attention/attention_scale.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::kKeyBlock;
using numerics::kSoftmaxLanes;
using numerics::kTc16Products;

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

// The chain of TC16 over d elements in groups of 16, the last filled with zeros.
float dot(const Bf16* a, const Bf16* b, int64_t d) {
  float acc = 0.0F;
  for (int64_t i = 0; i < d; i += kTc16Products) {
    Bf16 ga[kTc16Products] = {};
    Bf16 gb[kTc16Products] = {};
    const int64_t n = std::min<int64_t>(kTc16Products, d - i);
    std::copy_n(a + i, n, ga);
    std::copy_n(b + i, n, gb);
    acc = numerics::tc16_step(acc, ga, gb);
  }
  return acc;
}

// Keys [first, end) of one query and head: q [d], blocks of the sequence at kv_head. False: a score is out of
// range.
bool segment_state(const AttentionShape& shape, const Bf16* q, const AttentionRunBf16& run, int64_t kv_head,
                   int64_t first, int64_t end, State* state) {
  const int64_t d = shape.head_size;
  const float c = attention_score_scale(d);
  float lanes[kSoftmaxLanes] = {};
  state->o.assign(d, 0.0F);
  for (int64_t block = first / kKeyBlock; block * kKeyBlock < end; ++block) {
    const Bf16* k = run.k_blocks[block] + kv_head * kKeyBlock * d;
    const Bf16* v = run.v_blocks[block] + kv_head * kKeyBlock * d;
    const int64_t keys = std::min(kKeyBlock, end - block * kKeyBlock);
    float s[kKeyBlock];
    int n[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) {
      s[j] = dot(q, k + j * d, d) * c;
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
    Bf16 weights[kKeyBlock] = {};  // keys after the row's own: +0
    for (int64_t j = 0; j < keys; ++j) {
      const int e = n[j] - state->max;
      const float p =
          e < numerics::kWeightFloor
              ? 0.0F
              : numerics::scale_by_pow2(numerics::exp2_fraction(s[j] - static_cast<float>(n[j])), e);
      lanes[j % kSoftmaxLanes] = lanes[j % kSoftmaxLanes] + p;
      weights[j] = numerics::float_to_bfloat16(p);
    }
    for (int64_t group = 0; group < keys; group += kTc16Products) {
      const int64_t there = std::min<int64_t>(kTc16Products, keys - group);
      for (int64_t i = 0; i < d; ++i) {
        Bf16 values[kTc16Products] = {};
        for (int64_t j = 0; j < there; ++j) values[j] = v[(group + j) * d + i];
        state->o[i] = numerics::tc16_step(state->o[i], weights + group, values);
      }
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

int64_t kv_block_elements_bf16(const AttentionShape& shape) {
  return shape.kv_heads * kKeyBlock * shape.head_size;
}

void write_kv_blocks_bf16(const AttentionShape& shape, const Bf16* k, const Bf16* v, int64_t ld, int64_t n,
                          int64_t first, Bf16* const* k_blocks, Bf16* const* v_blocks) {
  const int64_t d = shape.head_size;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t block = (first + i) / kKeyBlock;
    const int64_t slot = (first + i) % kKeyBlock;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::copy_n(k + i * ld + head * d, d, k_blocks[block] + (head * kKeyBlock + slot) * d);
      std::copy_n(v + i * ld + head * d, d, v_blocks[block] + (head * kKeyBlock + slot) * d);
    }
  }
}

bool attention_forward_bf16_ref(const AttentionShape& shape, const Bf16* q, int64_t ldq,
                                const AttentionRunBf16* runs, int64_t n_runs, Bf16* out, int64_t ldo,
                                float* max_exponent, float* inverse_sum, int64_t segment) {
  const int64_t d = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  for (const AttentionRunBf16* run = runs; run < runs + n_runs; ++run) {
    for (int64_t i = 0; i < run->rows; ++i) {
      const int64_t row = run->first_row + i;
      const int64_t keys = run->first_position + i + 1;
      const int64_t step = segment == 0 ? keys : segment;
      for (int64_t head = 0; head < shape.heads; ++head) {
        const Bf16* query = q + row * ldq + head * d;
        State state;
        for (int64_t first = 0; first < keys; first += step) {
          State next;
          const int64_t end = std::min(first + step, keys);
          if (!segment_state(shape, query, *run, head / group, first, end, &next)) return false;
          if (first == 0) {
            state = next;
          } else {
            merge(next, &state);
          }
        }
        const float r = 1.0F / state.l;
        for (int64_t x = 0; x < d; ++x)
          out[row * ldo + head * d + x] = numerics::float_to_bfloat16(state.o[x] * r);
        if (max_exponent != nullptr) max_exponent[row * shape.heads + head] = static_cast<float>(state.max);
        if (inverse_sum != nullptr) inverse_sum[row * shape.heads + head] = r;
      }
    }
  }
  return true;
}

}  // namespace lockstep::ops
