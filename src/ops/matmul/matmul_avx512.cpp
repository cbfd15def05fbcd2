// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "ops/matmul/matmul_simd.h"

namespace lockstep::ops {
namespace {

struct Avx512 {
  using Vector = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 14;  // 28 accumulators, 2 columns, 1 row of 32 registers
  static constexpr int kVectors = 2;
  static constexpr int kSkinnyPanels[kMaxSkinnyRows + 1] = {0, 8, 6, 4, 3};

  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_load_ps(p); }
  static Vector load_any(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_store_ps(p, v); }
  static void store_any(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }

  // |x| < limit in `count` elements, a multiple of 16; false for NaN.
  static bool all_below(const float* x, int64_t count, float limit) {
    const Vector high = _mm512_set1_ps(limit);
    const Vector low = _mm512_set1_ps(-limit);
    __mmask16 inside = 0xFFFF;
    for (int64_t i = 0; i < count; i += kLanes) {
      const Vector value = _mm512_load_ps(x + i);
      inside = _mm512_mask_cmp_ps_mask(inside, value, high, _CMP_LT_OQ);
      inside = _mm512_mask_cmp_ps_mask(inside, value, low, _CMP_GT_OQ);
    }
    return inside == 0xFFFF;
  }
  // The whole range of gradients; the conversion rounds to nearest even as MXCSR says.
  static constexpr float kFixedLimit = 0x1p18F;
  // (The masked form of a full conversion: GCC 12 warns of the plain one's undefined pass-through.)
  static void add_fixed(const float* x, int64_t* image) {
    for (int half = 0; half < 2; ++half) {
      const __m512d scaled =
          _mm512_mul_pd(_mm512_maskz_cvtps_pd(0xFF, _mm256_load_ps(x + 8 * half)), _mm512_set1_pd(0x1p44));
      int64_t* at = image + 8 * half;
      _mm512_storeu_si512(at, _mm512_add_epi64(_mm512_loadu_si512(at), _mm512_cvtpd_epi64(scaled)));
    }
  }
};

}  // namespace

const MatmulKernels* matmul_kernels_avx512() {
  static const MatmulKernels kernels = simd::make_kernels<Avx512>();
  return &kernels;
}

}  // namespace lockstep::ops

#else

namespace lockstep::ops {

const MatmulKernels* matmul_kernels_avx512() {
  return nullptr;
}

}  // namespace lockstep::ops

#endif
