// SPDX-License-Identifier: Apache-2.0
// Any tiling over rows and columns gives the same bits: every element is its own chain.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/check.h"
#include "numerics/constants.h"
#include "ops/matmul/matmul.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kWidth = 16;

}  // namespace

int64_t PackedMatrix::bytes_for(const cpu::Context&, int64_t n, int64_t k) {
  return (n + kWidth - 1) / kWidth * kWidth * k * static_cast<int64_t>(sizeof(float));
}

void PackedMatrix::pack(const cpu::Context& context, const float* w, int64_t n, int64_t k) {
  n_ = n;
  k_ = k;
  width_ = kWidth;
  const int64_t panels = (n + width_ - 1) / width_;
  data_.ensure(panels * width_ * k);
  context.parallel_for(panels, [&](int64_t p) {
    float* out = data_.data() + p * width_ * k_;
    for (int64_t j = 0; j < width_; ++j) {
      const int64_t row = p * width_ + j;
      for (int64_t i = 0; i < k; ++i) out[i * width_ + j] = row < n ? w[row * k + i] : 0.0F;
    }
  });
}

void matmul_forward_cpu(const cpu::Context& context, const float* x, int64_t ldx, const PackedMatrix& w,
                        int64_t m, const MatmulEpilogue& epilogue, float* y, int64_t ldy) {
  const int64_t n = w.n();
  const int64_t k = w.k();
  context.parallel_for((n + kWidth - 1) / kWidth, [&](int64_t p) {
    const float* panel = w.panel(p);
    const int64_t columns = std::min(kWidth, n - p * kWidth);
    for (int64_t row = 0; row < m; ++row) {
      float sum[kWidth] = {};
      for (int64_t begin = 0; begin < k; begin += numerics::kForwardChunk) {
        float acc[kWidth] = {};
        for (int64_t i = begin; i < std::min(k, begin + numerics::kForwardChunk); ++i) {
          for (int64_t j = 0; j < kWidth; ++j)
            acc[j] = std::fma(x[row * ldx + i], panel[i * kWidth + j], acc[j]);
        }
        for (int64_t j = 0; j < kWidth; ++j) sum[j] = begin == 0 ? acc[j] : sum[j] + acc[j];
      }
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t column = p * kWidth + j;
        if (epilogue.bias != nullptr) sum[j] = sum[j] + epilogue.bias[column];
        if (epilogue.residual != nullptr)
          sum[j] = epilogue.residual[row * epilogue.ld_residual + column] + sum[j];
        y[row * ldy + column] = sum[j];
      }
    }
  });
}

void matmul_input_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* w,
                               int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx) {
  context.parallel_for(m, [&](int64_t row) {
    Buffer<float> acc(k);
    float* out = dx + row * lddx;
    for (int64_t j = 0; j < k; ++j) out[j] = 0.0F;
    for (int64_t begin = 0; begin < n; begin += numerics::kGradientChunk) {
      acc.fill_zero();
      for (int64_t i = begin; i < std::min(n, begin + numerics::kGradientChunk); ++i) {
        for (int64_t j = 0; j < k; ++j) acc[j] = std::fma(dy[row * lddy + i], w[i * k + j], acc[j]);
      }
      for (int64_t j = 0; j < k; ++j) out[j] = begin == 0 ? acc[j] : out[j] + acc[j];
    }
  });
}

bool matmul_weight_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* x,
                                int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                const WeightGradientTarget& target) {
  std::atomic<bool> in_range{true};
  context.parallel_for(n, [&](int64_t row) {
    WeightGradientTarget part = target;
    if (part.carry != nullptr) part.carry += row * k;
    if (part.chunk_sum != nullptr) part.chunk_sum += row * k;
    if (part.image != nullptr) part.image += row * k;
    if (!matmul_weight_gradient_ref(dy + row, lddy, x, ldx, rows, 1, k, part))
      in_range.store(false, std::memory_order_relaxed);
  });
  return in_range.load();
}

}  // namespace lockstep::ops
