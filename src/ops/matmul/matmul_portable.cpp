// SPDX-License-Identifier: Apache-2.0
// Plain loops of std::fma over fixed-size arrays, which compilers keep in vector registers where they can.
#include <cmath>

#include "numerics/fixed_point.h"
#include "ops/matmul/matmul_kernel.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kWidth = 16;

template <int R>
void tile_kernel(int64_t steps, const float* a, const float* b, const float* in, float* out, const char*,
                 int64_t) {
  float acc[R][kWidth];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWidth; ++j) acc[r][j] = in == nullptr ? 0.0F : in[r * kWidth + j];
  }
  for (int64_t t = 0; t < steps; ++t) {
    for (int r = 0; r < R; ++r) {
      for (int j = 0; j < kWidth; ++j) acc[r][j] = std::fma(a[t * R + r], b[t * kWidth + j], acc[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWidth; ++j) out[r * kWidth + j] = acc[r][j];
  }
}

template <int R>
void skinny_kernel(int64_t steps, const float* x, int64_t ldx, const float* panels, int64_t, float* out) {
  float acc[R][kWidth] = {};
  for (int64_t t = 0; t < steps; ++t) {
    for (int r = 0; r < R; ++r) {
      for (int j = 0; j < kWidth; ++j)
        acc[r][j] = std::fma(x[r * ldx + t], panels[t * kWidth + j], acc[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWidth; ++j) out[r * kWidth + j] = acc[r][j];
  }
}

void stream_kernel(int64_t steps, const float* a, const float* b, int64_t ldb, int64_t columns, float* acc) {
  for (int64_t t = 0; t < steps; ++t, b += ldb) {
    for (int64_t j = 0; j < columns; ++j) acc[j] = std::fma(a[t], b[j], acc[j]);
  }
}

template <int R>
void direct_kernel(int64_t steps, const float* a, const float* b, int64_t ldb, float* out) {
  float acc[R][kWidth];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWidth; ++j) acc[r][j] = out[r * kWidth + j];
  }
  for (int64_t t = 0; t < steps; ++t) {
    for (int r = 0; r < R; ++r) {
      for (int j = 0; j < kWidth; ++j) acc[r][j] = std::fma(a[t * R + r], b[t * ldb + j], acc[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kWidth; ++j) out[r * kWidth + j] = acc[r][j];
  }
}

void add_to_sum(const float* acc, int64_t count, float* sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = sum[i] + acc[i];
}

void store(const float* tile, int64_t rows, int64_t columns, const float* bias, const float* residual,
           int64_t ld_residual, float* y, int64_t ldy) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      float value = tile[r * kWidth + j];
      if (bias != nullptr) value = value + bias[j];
      if (residual != nullptr) value = residual[r * ld_residual + j] + value;
      y[r * ldy + j] = value;
    }
  }
}

bool add_to_image(const float* tile, int64_t rows, int64_t columns, float bound, int64_t* image, int64_t ld) {
  return add_to_image_scalar(tile, rows, columns, kWidth, bound, image, ld);
}

template <int R = 1>
void fill(MatmulKernels* kernels) {
  kernels->tile[R] = tile_kernel<R>;
  kernels->skinny[R][1] = skinny_kernel<R>;
  kernels->skinny_panels[R] = 1;
  kernels->direct[R] = direct_kernel<R>;
  if constexpr (R < kRows) fill<R + 1>(kernels);
}

MatmulKernels make_kernels() {
  static_assert(kRows == kMaxSkinnyRows);
  MatmulKernels kernels{};
  kernels.rows = kRows;
  kernels.width = kWidth;
  fill(&kernels);
  kernels.stream = stream_kernel;
  kernels.add_to_sum = add_to_sum;
  kernels.store = store;
  kernels.add_to_image = add_to_image;
  return kernels;
}

}  // namespace

const MatmulKernels& matmul_kernels_portable() {
  static const MatmulKernels kernels = make_kernels();
  return kernels;
}

bool add_to_image_scalar(const float* tile, int64_t rows, int64_t columns, int64_t width, float bound,
                         int64_t* image, int64_t ld) {
  bool in_range = true;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      const float value = tile[r * width + j];
      if (numerics::in_gradient_range(value, bound)) {
        image[r * ld + j] += numerics::gradient_to_fixed(value);
      } else {
        in_range = false;
      }
    }
  }
  return in_range;
}

}  // namespace lockstep::ops
