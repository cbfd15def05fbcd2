// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_pack.h"

#include <algorithm>
#include <cstring>

#include "ops/matmul/matmul_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::ops {
namespace {

void transpose_plain(const float* in, int64_t ld, int64_t rows, int64_t steps, int64_t width, float* out) {
  for (int64_t t = 0; t < steps; ++t) {
    for (int64_t r = 0; r < rows; ++r) out[t * width + r] = in[r * ld + t];
  }
}

#if defined(__x86_64__)
// 4 rows by 4 steps at a time.
void transpose_four(const float* in, int64_t ld, int64_t steps, int64_t width, float* out) {
  int64_t t = 0;
  for (; t + 4 <= steps; t += 4) {
    __m128 a = _mm_loadu_ps(in + t);
    __m128 b = _mm_loadu_ps(in + ld + t);
    __m128 c = _mm_loadu_ps(in + 2 * ld + t);
    __m128 d = _mm_loadu_ps(in + 3 * ld + t);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(out + t * width, a);
    _mm_storeu_ps(out + (t + 1) * width, b);
    _mm_storeu_ps(out + (t + 2) * width, c);
    _mm_storeu_ps(out + (t + 3) * width, d);
  }
  transpose_plain(in + t, ld, 4, steps - t, width, out + t * width);
}

void transpose_two(const float* in, int64_t ld, int64_t steps, int64_t width, float* out) {
  int64_t t = 0;
  for (; t + 4 <= steps; t += 4) {
    const __m128 a = _mm_loadu_ps(in + t);
    const __m128 b = _mm_loadu_ps(in + ld + t);
    const __m128 low = _mm_unpacklo_ps(a, b);
    const __m128 high = _mm_unpackhi_ps(a, b);
    _mm_storel_pi(reinterpret_cast<__m64*>(out + t * width), low);
    _mm_storeh_pi(reinterpret_cast<__m64*>(out + (t + 1) * width), low);
    _mm_storel_pi(reinterpret_cast<__m64*>(out + (t + 2) * width), high);
    _mm_storeh_pi(reinterpret_cast<__m64*>(out + (t + 3) * width), high);
  }
  transpose_plain(in + t, ld, 2, steps - t, width, out + t * width);
}
#endif

template <int kWidth>
void copy_rows(const float* in, int64_t ld, int64_t steps, float* out) {
  for (int64_t t = 0; t < steps; ++t) std::memcpy(out + t * kWidth, in + t * ld, kWidth * sizeof(float));
}

}  // namespace

void pack_transposed(const float* in, int64_t ld, int64_t rows, int64_t steps, int64_t width, float* out) {
  constexpr int64_t kBlock = 64;  // steps whose lines of `out` stay in the L1 cache over all rows
  for (int64_t t = 0; t < steps; t += kBlock) {
    const int64_t count = std::min(kBlock, steps - t);
    int64_t r = 0;
#if defined(__x86_64__)
    for (; r + 4 <= rows; r += 4) transpose_four(in + r * ld + t, ld, count, width, out + t * width + r);
    for (; r + 2 <= rows; r += 2) transpose_two(in + r * ld + t, ld, count, width, out + t * width + r);
#endif
    transpose_plain(in + r * ld + t, ld, rows - r, count, width, out + t * width + r);
    if (rows == width) continue;
    for (int64_t i = 0; i < count; ++i)
      std::fill(out + (t + i) * width + rows, out + (t + i + 1) * width, 0.0F);
  }
}

void pack_panels(const float* in, int64_t ld, int64_t steps, int64_t columns, int64_t width,
                 int64_t panel_stride, float* out) {
  constexpr int64_t kBlock = 8;  // rows read side by side
  for (int64_t t = 0; t < steps; t += kBlock) {
    const int64_t count = std::min(kBlock, steps - t);
    int64_t j = 0;
    float* to = out + t * width;
    for (; j + width <= columns; j += width, to += panel_stride) {
      if (width == 16) {
        copy_rows<16>(in + t * ld + j, ld, count, to);
      } else {
        copy_rows<32>(in + t * ld + j, ld, count, to);
      }
    }
    if (j == columns) continue;
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(in + (t + i) * ld + j, columns - j, to + i * width);
      std::fill(to + i * width + columns - j, to + (i + 1) * width, 0.0F);
    }
  }
}

void pack_rows(const float* in, int64_t ld, int64_t steps, const int64_t* begins, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t rows = begins[i + 1] - begins[i];
    pack_transposed(in + begins[i] * ld, ld, rows, steps, rows, out);
    out += rows * steps;
  }
}

void pack_narrow(const float* in, int64_t ld, int64_t steps, const int64_t* begins, int64_t count,
                 float* out) {
  using Copy = void (*)(const float*, int64_t, int64_t, float*);
  static constexpr Copy kCopies[kMaxTileRows + 1] = {
      nullptr,       copy_rows<1>,  copy_rows<2>,  copy_rows<3>,  copy_rows<4>,
      copy_rows<5>,  copy_rows<6>,  copy_rows<7>,  copy_rows<8>,  copy_rows<9>,
      copy_rows<10>, copy_rows<11>, copy_rows<12>, copy_rows<13>, copy_rows<14>};
  constexpr int64_t kBlock = 8;  // rows read side by side
  for (int64_t t = 0; t < steps; t += kBlock) {
    const int64_t rows = std::min(kBlock, steps - t);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t width = begins[i + 1] - begins[i];
      kCopies[width](in + t * ld + begins[i], ld, rows, out + (begins[i] - begins[0]) * steps + t * width);
    }
  }
}

}  // namespace lockstep::ops
