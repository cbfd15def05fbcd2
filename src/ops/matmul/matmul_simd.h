// SPDX-License-Identifier: Apache-2.0
// The kernels of matmul_kernel.h written once for any vector type V. V must be a type of the including file
// (anonymous namespace), so that no two files share an instantiation: they are compiled for different
// instruction sets. For the same reason nothing of the standard library is called here.
//
// V: kLanes; kRows, kVectors (tile of kRows x kVectors*kLanes); kSkinnyPanels[r]; Vector; zero, load, store
// (aligned), load_any, store_any, broadcast, fma, add, all_below, add_fixed and kFixedLimit.
#pragma once

#include "ops/matmul/matmul_kernel.h"

#if defined(__clang__)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 32")
#endif

namespace lockstep::ops::simd {

template <class V>
inline constexpr int64_t kWidth = V::kVectors* V::kLanes;

template <class V, int R>
struct Tile {
  typename V::Vector acc[R][V::kVectors];

  void begin(const float* in) {
    LOCKSTEP_UNROLL
    for (int r = 0; r < R; ++r) {
      LOCKSTEP_UNROLL
      for (int v = 0; v < V::kVectors; ++v)
        acc[r][v] = in == nullptr ? V::zero() : V::load(in + r * kWidth<V> + v * V::kLanes);
    }
  }
  template <bool kAligned = true>
  void step(const float* a, const float* b) {
    typename V::Vector column[V::kVectors];
    LOCKSTEP_UNROLL
    for (int v = 0; v < V::kVectors; ++v)
      column[v] = kAligned ? V::load(b + v * V::kLanes) : V::load_any(b + v * V::kLanes);
    LOCKSTEP_UNROLL
    for (int r = 0; r < R; ++r) {
      const typename V::Vector row = V::broadcast(a + r);
      LOCKSTEP_UNROLL
      for (int v = 0; v < V::kVectors; ++v) acc[r][v] = V::fma(row, column[v], acc[r][v]);
    }
  }
  void end(float* out) const {
    LOCKSTEP_UNROLL
    for (int r = 0; r < R; ++r) {
      LOCKSTEP_UNROLL
      for (int v = 0; v < V::kVectors; ++v) V::store(out + r * kWidth<V> + v * V::kLanes, acc[r][v]);
    }
  }
};

template <class V, int R>
void tile_kernel(int64_t steps, const float* a, const float* b, const float* in, float* out, const char* next,
                 int64_t lines) {
  Tile<V, R> tile;
  if (in == nullptr) {
    tile.begin(nullptr);
  } else {
    tile.begin(in);
  }
  int64_t t = 0;
  for (; t + 16 <= steps; t += 16) {
    for (int64_t line = 0; line < lines; ++line, next += 64) __builtin_prefetch(next);
    for (int group = 0; group < 4; ++group) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) tile.step(a + i * R, b + i * kWidth<V>);
      a += 4 * R;
      b += 4 * kWidth<V>;
    }
  }
  for (; t < steps; ++t) {
    tile.step(a, b);
    a += R;
    b += kWidth<V>;
  }
  tile.end(out);
}

template <class V, int R, int P>
void skinny_kernel(int64_t steps, const float* x, int64_t ldx, const float* panels, int64_t panel_stride,
                   float* out) {
  typename V::Vector acc[P][R][V::kVectors];
  LOCKSTEP_UNROLL
  for (int p = 0; p < P; ++p) {
    LOCKSTEP_UNROLL
    for (int r = 0; r < R; ++r) {
      LOCKSTEP_UNROLL
      for (int v = 0; v < V::kVectors; ++v) acc[p][r][v] = V::zero();
    }
  }
  for (int64_t t = 0; t < steps; ++t) {
    typename V::Vector row[R];
    LOCKSTEP_UNROLL
    for (int r = 0; r < R; ++r) row[r] = V::broadcast(x + r * ldx + t);
    LOCKSTEP_UNROLL
    for (int p = 0; p < P; ++p) {
      LOCKSTEP_UNROLL
      for (int v = 0; v < V::kVectors; ++v) {
        const typename V::Vector column = V::load(panels + p * panel_stride + t * kWidth<V> + v * V::kLanes);
        LOCKSTEP_UNROLL
        for (int r = 0; r < R; ++r) acc[p][r][v] = V::fma(row[r], column, acc[p][r][v]);
      }
    }
  }
  LOCKSTEP_UNROLL
  for (int p = 0; p < P; ++p) {
    LOCKSTEP_UNROLL
    for (int r = 0; r < R; ++r) {
      LOCKSTEP_UNROLL
      for (int v = 0; v < V::kVectors; ++v)
        V::store(out + (p * R + r) * kWidth<V> + v * V::kLanes, acc[p][r][v]);
    }
  }
}

template <class V, int R>
void direct_kernel(int64_t steps, const float* a, const float* b, int64_t ldb, float* acc) {
  Tile<V, R> tile;
  tile.begin(acc);
  int64_t t = 0;
  for (; t + 4 <= steps; t += 4) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i) tile.template step<false>(a + i * R, b + i * ldb);
    a += 4 * R;
    b += 4 * ldb;
  }
  for (; t < steps; ++t) {
    tile.template step<false>(a, b);
    a += R;
    b += ldb;
  }
  tile.end(acc);
}

template <class V, int S>
void stream_steps(const float* a, const float* b, int64_t ldb, int64_t columns, float* acc) {
  typename V::Vector step[S];
  LOCKSTEP_UNROLL
  for (int i = 0; i < S; ++i) step[i] = V::broadcast(a + i);
  int64_t j = 0;
  for (; j + V::kLanes <= columns; j += V::kLanes) {
    typename V::Vector value = V::load_any(acc + j);
    LOCKSTEP_UNROLL
    for (int i = 0; i < S; ++i) value = V::fma(step[i], V::load_any(b + i * ldb + j), value);
    V::store_any(acc + j, value);
  }
  for (; j < columns; ++j) {
    for (int i = 0; i < S; ++i) acc[j] = __builtin_fmaf(a[i], b[i * ldb + j], acc[j]);
  }
}

template <class V>
void stream_kernel(int64_t steps, const float* a, const float* b, int64_t ldb, int64_t columns, float* acc) {
  constexpr int kSide = 8;  // rows of b read side by side: streams that the memory follows well
  int64_t t = 0;
  for (; t + kSide <= steps; t += kSide) stream_steps<V, kSide>(a + t, b + t * ldb, ldb, columns, acc);
  for (; t < steps; ++t) stream_steps<V, 1>(a + t, b + t * ldb, ldb, columns, acc);
}

template <class V>
void add_to_sum(const float* acc, int64_t count, float* sum) {
  for (int64_t i = 0; i < count; i += V::kLanes)
    V::store(sum + i, V::add(V::load(sum + i), V::load(acc + i)));
}

template <class V>
void store(const float* tile, int64_t rows, int64_t columns, const float* bias, const float* residual,
           int64_t ld_residual, float* y, int64_t ldy) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = tile + r * kWidth<V>;
    const float* before = residual == nullptr ? nullptr : residual + r * ld_residual;
    float* out = y + r * ldy;
    int64_t j = 0;
    for (; j + V::kLanes <= columns; j += V::kLanes) {
      typename V::Vector value = V::load(in + j);
      if (bias != nullptr) value = V::add(value, V::load_any(bias + j));
      if (before != nullptr) value = V::add(V::load_any(before + j), value);
      V::store_any(out + j, value);
    }
    for (; j < columns; ++j) {
      float value = in[j];
      if (bias != nullptr) value = value + bias[j];
      if (before != nullptr) value = before[j] + value;
      out[j] = value;
    }
  }
}

template <class V>
bool add_to_image(const float* tile, int64_t rows, int64_t columns, float bound, int64_t* image, int64_t ld) {
  const float limit = bound < V::kFixedLimit ? bound : V::kFixedLimit;
  if (columns != kWidth<V> || !V::all_below(tile, rows * kWidth<V>, limit))
    return add_to_image_scalar(tile, rows, columns, kWidth<V>, bound, image, ld);
  for (int64_t r = 0; r < rows; ++r) {
    LOCKSTEP_UNROLL
    for (int v = 0; v < V::kVectors; ++v)
      V::add_fixed(tile + r * kWidth<V> + v * V::kLanes, image + r * ld + v * V::kLanes);
  }
  return true;
}

template <class V, int R = 1>
void fill_tiles(MatmulKernels* kernels) {
  kernels->tile[R] = tile_kernel<V, R>;
  kernels->direct[R] = direct_kernel<V, R>;
  if constexpr (R < V::kRows) fill_tiles<V, R + 1>(kernels);
}

template <class V, int R = 1, int P = 1>
void fill_skinny(MatmulKernels* kernels) {
  kernels->skinny[R][P] = skinny_kernel<V, R, P>;
  if constexpr (P == 1) kernels->skinny_panels[R] = V::kSkinnyPanels[R];
  if constexpr (P < V::kSkinnyPanels[R]) {
    fill_skinny<V, R, P + 1>(kernels);
  } else if constexpr (R < kMaxSkinnyRows) {
    fill_skinny<V, R + 1, 1>(kernels);
  }
}

template <class V>
MatmulKernels make_kernels() {
  static_assert(V::kRows <= kMaxTileRows && kWidth<V> <= kMaxTileWidth);
  MatmulKernels kernels{};
  kernels.rows = V::kRows;
  kernels.width = kWidth<V>;
  fill_tiles<V>(&kernels);
  fill_skinny<V>(&kernels);
  kernels.stream = stream_kernel<V>;
  kernels.add_to_sum = add_to_sum<V>;
  kernels.store = store<V>;
  kernels.add_to_image = add_to_image<V>;
  return kernels;
}

}  // namespace lockstep::ops::simd
