// SPDX-License-Identifier: Apache-2.0
// The definition of the bits: one chain of TC16 at a time, as docs/numerics.md writes it.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "numerics/fixed_point.h"
#include "numerics/math.h"
#include "numerics/tc16.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_bf16.h"

namespace lockstep::ops {
namespace {

using numerics::bfloat16_to_float;
using numerics::float_to_bfloat16;
using numerics::kGradientChunk;
using numerics::kTc16Products;

// TC16 of up to 16 pairs; the group is filled with zeros.
float group_step(float acc, const Bf16* a, int64_t stride_a, const Bf16* b, int64_t stride_b, int64_t pairs) {
  Bf16 group_a[kTc16Products] = {};
  Bf16 group_b[kTc16Products] = {};
  for (int64_t i = 0; i < pairs; ++i) {
    group_a[i] = a[i * stride_a];
    group_b[i] = b[i * stride_b];
  }
  return numerics::tc16_step(acc, group_a, group_b);
}

float chunked_chain(const Bf16* a, int64_t stride_a, const Bf16* b, int64_t stride_b, int64_t length,
                    int64_t chunk) {
  LOCKSTEP_CHECK(chunk > 0 && chunk % kTc16Products == 0);
  float sum = 0.0F;
  for (int64_t begin = 0; begin < length; begin += chunk) {
    float acc = 0.0F;
    const int64_t end = std::min(length, begin + chunk);
    for (int64_t i = begin; i < end; i += kTc16Products) {
      acc = group_step(acc, a + i * stride_a, stride_a, b + i * stride_b, stride_b,
                       std::min<int64_t>(kTc16Products, end - i));
    }
    sum = begin == 0 ? acc : sum + acc;
  }
  return sum;
}

// One element's chain over the rows of one call, from and to the target's carry and chunk sum.
float weight_chain(const Bf16* dy, int64_t lddy, const Bf16* x, int64_t ldx, int64_t rows,
                   const WeightGradientTarget& target, int64_t element) {
  float acc = target.begins ? 0.0F : target.carry[element];
  int64_t position = target.rows_before;
  float sum = position > kGradientChunk ? target.chunk_sum[element] : 0.0F;
  for (int64_t t = 0; t < rows; t += kTc16Products, position += kTc16Products) {
    if (position > 0 && position % kGradientChunk == 0) {  // a whole chunk lies behind: fold it
      sum = position == kGradientChunk ? acc : sum + acc;
      acc = 0.0F;
    }
    acc = group_step(acc, dy + t * lddy, lddy, x + t * ldx, ldx, kTc16Products);
  }
  if (!target.ends) {
    target.carry[element] = acc;
    if (position > kGradientChunk) target.chunk_sum[element] = sum;
  }
  return position > kGradientChunk ? sum + acc : acc;
}

}  // namespace

void matmul_bf16_forward_ref(const Bf16* x, int64_t ldx, const Bf16* w, int64_t m, int64_t n, int64_t k,
                             float* y, int64_t ldy, int64_t chunk) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) y[i * ldy + j] = chunked_chain(x + i * ldx, 1, w + j * k, 1, k, chunk);
  }
}

void matmul_bf16_input_gradient_ref(const Bf16* dy, int64_t lddy, const Bf16* w, int64_t m, int64_t n,
                                    int64_t k, float* dx, int64_t lddx) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j)
      dx[i * lddx + j] = chunked_chain(dy + i * lddy, 1, w + j, k, n, kGradientChunk);
  }
}

bool matmul_bf16_weight_gradient_ref(const Bf16* dy, int64_t lddy, const Bf16* x, int64_t ldx, int64_t rows,
                                     int64_t n, int64_t k, const WeightGradientTarget& target) {
  LOCKSTEP_CHECK(!target.begins || target.rows_before == 0);
  LOCKSTEP_CHECK(rows % numerics::kTokenPad == 0 && target.rows_before % numerics::kTokenPad == 0);
  bool in_range = true;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const float result = weight_chain(dy + i, lddy, x + j, ldx, rows, target, i * k + j);
      if (!target.ends) continue;
      if (numerics::in_gradient_range(result, target.bound)) {
        target.image[i * k + j] += numerics::gradient_to_fixed(result);
      } else {
        in_range = false;
      }
    }
  }
  return in_range;
}

void matmul_bf16_bias_ref(const Bf16* bias, int64_t m, int64_t n, float* y, int64_t ldy) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) y[i * ldy + j] = y[i * ldy + j] + bfloat16_to_float(bias[j]);
  }
}

void matmul_bf16_rope_ref(const RopeEpilogue& rope, int64_t m, float* y, int64_t ldy) {
  const int64_t half = rope.head_size / 2;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t head = 0; head < rope.columns; head += rope.head_size) {
      float* pair = y + row * ldy + head;
      for (int64_t i = 0; i < half; ++i) {
        const float c = rope.cos[rope.positions[row] * half + i];
        const float s = rope.sin[rope.positions[row] * half + i];
        const float a = pair[i];
        const float b = pair[i + half];
        pair[i] = std::fma(a, c, -(b * s));
        pair[i + half] = std::fma(b, c, a * s);
      }
    }
  }
}

void matmul_bf16_round_ref(const float* y, int64_t ldy, int64_t m, int64_t n, Bf16* out, int64_t ldo) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) out[i * ldo + j] = float_to_bfloat16(y[i * ldy + j]);
  }
}

void matmul_bf16_residual_ref(const float* y, int64_t ldy, const Bf16* residual, int64_t ld_residual,
                              int64_t m, int64_t n, Bf16* out, int64_t ldo) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      out[i * ldo + j] = float_to_bfloat16(bfloat16_to_float(residual[i * ld_residual + j]) + y[i * ldy + j]);
    }
  }
}

void matmul_bf16_swiglu_ref(const float* y, int64_t ldy, int64_t m, int64_t f, Bf16* gate_up,
                            int64_t ld_gate_up, Bf16* act, int64_t ld_act) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < f; ++j) {
      const Bf16 gate = float_to_bfloat16(y[i * ldy + j]);
      const Bf16 up = float_to_bfloat16(y[i * ldy + f + j]);
      if (gate_up != nullptr) {
        gate_up[i * ld_gate_up + j] = gate;
        gate_up[i * ld_gate_up + f + j] = up;
      }
      const float g = bfloat16_to_float(gate);
      act[i * ld_act + j] = float_to_bfloat16((g / (1.0F + numerics::exp(-g))) * bfloat16_to_float(up));
    }
  }
}

}  // namespace lockstep::ops
