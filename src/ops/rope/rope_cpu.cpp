// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "numerics/math.h"
#include "ops/rope/rope.h"

namespace lockstep::ops {
namespace {

// a and b are the halves of one head; sign is +1, or -1 for the gradient (both products are exact).
void rotate(const float* __restrict c, const float* __restrict s, float sign, int64_t half,
            float* __restrict a, float* __restrict b) {
  for (int64_t i = 0; i < half; ++i) {
    const float sine = sign * s[i];
    const float x = a[i];
    const float y = b[i];
    a[i] = std::fma(x, c[i], -(y * sine));
    b[i] = std::fma(y, c[i], x * sine);
  }
}

}  // namespace

RopeTable make_rope_table(const cpu::Context& context, double base, int64_t head_size, int64_t positions) {
  const int64_t half = head_size / 2;
  RopeTable table;
  table.head_size = head_size;
  table.positions = positions;
  table.cos = Buffer<float>(positions * half);
  table.sin = Buffer<float>(positions * half);
  const double log2_base = numerics::log2(base);
  Buffer<double> frequency(half);
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(head_size);
    frequency[i] = numerics::exp2(-exponent * log2_base);
  }
  context.parallel_ranges(positions, 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * frequency[i];
        table.cos[position * half + i] = static_cast<float>(numerics::cos(angle));
        table.sin[position * half + i] = static_cast<float>(numerics::sin(angle));
      }
    }
  });
  return table;
}

void rope_cpu(const cpu::Context& context, const RopeTable& table, const int32_t* positions, int64_t rows,
              int64_t heads, bool inverse, float* x, int64_t ldx) {
  const int64_t half = table.head_size / 2;
  const float sign = inverse ? -1.0F : 1.0F;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, heads * table.head_size));
  context.parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* c = table.cos.data() + positions[row] * half;
      const float* s = table.sin.data() + positions[row] * half;
      for (int64_t head = 0; head < heads; ++head) {
        float* a = x + row * ldx + head * table.head_size;
        rotate(c, s, sign, half, a, a + half);
      }
    }
  });
}

}  // namespace lockstep::ops
