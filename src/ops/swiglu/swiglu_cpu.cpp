// SPDX-License-Identifier: Apache-2.0
// Blocks of columns of a row in parallel. Results go through a small array, so that d_gate_up may be gate_up
// and the loops still vectorise.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "numerics/math.h"
#include "ops/swiglu/swiglu.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kElementsPerTask = 8192;

void forward_block(const float* __restrict gate, const float* __restrict up, int64_t n, float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] = (gate[i] / (1.0F + numerics::exp(-gate[i]))) * up[i];
}

void backward_block(const float* __restrict dy, const float* __restrict gate, const float* __restrict up,
                    int64_t n, float* __restrict d_gate, float* __restrict d_up) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const float denominator = 1.0F + numerics::exp(-g);
    const float t = 1.0F / denominator;
    d_up[i] = dy[i] * (g / denominator);
    d_gate[i] = (dy[i] * up[i]) * (t * std::fma(g, 1.0F - t, 1.0F));
  }
}

// Calls block(row, first column, columns) for every block of every row.
template <typename Block>
void for_each_block(const cpu::Context& context, int64_t rows, int64_t f, const Block& block) {
  const int64_t blocks = (f + kBlock - 1) / kBlock;
  context.parallel_ranges(rows * blocks, kElementsPerTask / kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = (b % blocks) * kBlock;
      block(b / blocks, first, std::min(kBlock, f - first));
    }
  });
}

}  // namespace

void swiglu_forward_cpu(const cpu::Context& context, const float* gate_up, int64_t rows, int64_t f,
                        float* y) {
  for_each_block(context, rows, f, [&](int64_t row, int64_t first, int64_t n) {
    const float* gate = gate_up + row * 2 * f + first;
    forward_block(gate, gate + f, n, y + row * f + first);
  });
}

void swiglu_backward_cpu(const cpu::Context& context, const float* dy, const float* gate_up, int64_t rows,
                         int64_t f, float* d_gate_up) {
  for_each_block(context, rows, f, [&](int64_t row, int64_t first, int64_t n) {
    const float* gate = gate_up + row * 2 * f + first;
    float d_gate[kBlock];
    float d_up[kBlock];
    backward_block(dy + row * f + first, gate, gate + f, n, d_gate, d_up);
    float* out = d_gate_up + row * 2 * f + first;
    std::memcpy(out, d_gate, static_cast<size_t>(n) * sizeof(float));
    std::memcpy(out + f, d_up, static_cast<size_t>(n) * sizeof(float));
  });
}

}  // namespace lockstep::ops
