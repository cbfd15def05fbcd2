// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "ops/matmul/matmul_simd.h"

namespace lockstep::ops {
namespace {

struct Avx2 {
  using Vector = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6;     // 12 accumulators, 2 columns, 1 row of 16 registers
  static constexpr int kVectors = 2;  // 4 cycles of latency on 2 units need 8 accumulators
  static constexpr int kSkinnyPanels[kMaxSkinnyRows + 1] = {0, 6, 3, 2, 1};

  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_load_ps(p); }
  static Vector load_any(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_store_ps(p, v); }
  static void store_any(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }

  // |x| < limit in `count` elements, a multiple of 8: without the sign, floats are ordered as integers, and
  // NaN is above infinity.
  static bool all_below(const float* x, int64_t count, float limit) {
    __m256i largest = _mm256_setzero_si256();
    for (int64_t i = 0; i < count; i += kLanes) {
      const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(x + i));
      largest = _mm256_max_epu32(largest, _mm256_slli_epi32(bits, 1));
    }
    const Vector size = _mm256_castsi256_ps(_mm256_srli_epi32(largest, 1));
    return _mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(limit), _CMP_LT_OQ)) == 0xFF;
  }
  // Below 2^7, x * 2^44 + 1.5 * 2^52 is in [2^52, 2^53): the sum rounds to an integer, ties to even, and its
  // bits minus those of 1.5 * 2^52 are that integer.
  static constexpr float kFixedLimit = 0x1p7F;
  static void add_fixed_half(__m128 x, int64_t* image) {
    const __m256d shift = _mm256_set1_pd(0x1.8p52);
    const __m256d sum = _mm256_fmadd_pd(_mm256_cvtps_pd(x), _mm256_set1_pd(0x1p44), shift);
    const __m256i value = _mm256_sub_epi64(_mm256_castpd_si256(sum), _mm256_castpd_si256(shift));
    __m256i* at = reinterpret_cast<__m256i*>(image);
    _mm256_storeu_si256(at, _mm256_add_epi64(_mm256_loadu_si256(at), value));
  }
  static void add_fixed(const float* x, int64_t* image) {
    add_fixed_half(_mm_load_ps(x), image);
    add_fixed_half(_mm_load_ps(x + 4), image + 4);
  }
};

}  // namespace

const MatmulKernels* matmul_kernels_avx2() {
  static const MatmulKernels kernels = simd::make_kernels<Avx2>();
  return &kernels;
}

}  // namespace lockstep::ops

#else

namespace lockstep::ops {

const MatmulKernels* matmul_kernels_avx2() {
  return nullptr;
}

}  // namespace lockstep::ops

#endif
