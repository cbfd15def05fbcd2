// SPDX-License-Identifier: Apache-2.0
// Compiled with AVX-512 flags: nothing here may be shared with other files (vocabulary_kernel.h).
#include "ops/vocabulary/vocabulary_row.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#if defined(__GNUC__) && !defined(__clang__)
// False alarms of GCC 12 inside its own header (_mm512_undefined_ps).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "numerics/math.h"
#include "ops/vocabulary/vocabulary_kernel.h"

namespace lockstep::ops {
namespace {

struct Avx512 {
  static constexpr int kWidth = 16;
  using Reg = __m512;
  struct Sums {
    __m512i w, e;
  };
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static Reg set1(float a) { return _mm512_set1_ps(a); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg round(Reg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static float highest(Reg a) { return _mm512_reduce_max_ps(a); }
  static Reg usable(Reg logit, Reg s, bool* ok) {
    const __mmask16 absent = _mm512_cmp_ps_mask(logit, set1(kMinusInfinity), _CMP_EQ_OQ);
    const __mmask16 in_range = _mm512_cmp_ps_mask(_mm512_abs_ps(s), set1(numerics::kMaxScore), _CMP_LT_OQ);
    *ok &= (absent | in_range) == 0xFFFF;
    return _mm512_mask_mov_ps(s, absent, set1(kAbsent));
  }
  static Reg scale(Reg p, Reg e, float floor) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvttps_epi32(e), _mm512_set1_epi32(127));
    const Reg power = _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(e, set1(floor), _CMP_NLT_UQ), p, power);
  }
  static Reg above(Reg x, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, set1(limit), _CMP_GT_OQ), x);
  }
  static Reg where_nonzero(Reg p, Reg x, Reg y) {
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_EQ_OQ), y);
  }
  static __m512d low(Reg a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
  static __m512d high(Reg a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
  static __m512i fixed(__m512d x) {
    return _mm512_castpd_si512(_mm512_fmadd_pd(x, _mm512_set1_pd(0x1p44), _mm512_set1_pd(kRounder)));
  }
  static Sums no_sums() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  static void add(Sums* sums, Reg weight, Reg distance) {
    const __m512d w0 = low(weight);
    const __m512d w1 = high(weight);
    sums->w = _mm512_add_epi64(sums->w, _mm512_add_epi64(fixed(w0), fixed(w1)));
    sums->e = _mm512_add_epi64(sums->e, _mm512_add_epi64(fixed(_mm512_mul_pd(w0, low(distance))),
                                                         fixed(_mm512_mul_pd(w1, high(distance)))));
  }
  static uint64_t sum(__m512i a) {
    uint64_t x[8];
    _mm512_storeu_si512(x, a);
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
  }
  static void total(const Sums& sums, uint64_t* w, uint64_t* e) {
    *w = sum(sums.w);
    *e = sum(sums.e);
  }
  static void store_fixed(uint64_t* out, Reg weight) {
    const __m512i bits = _mm512_set1_epi64(static_cast<int64_t>(kRounderBits));
    _mm512_storeu_si512(out, _mm512_sub_epi64(fixed(low(weight)), bits));
    _mm512_storeu_si512(out + 8, _mm512_sub_epi64(fixed(high(weight)), bits));
  }
};

}  // namespace

VocabularyKernels vocabulary_kernels_avx512() {
  return {vocabulary_tiles<Avx512>, vocabulary_weights<Avx512>, vocabulary_gradient<Avx512>};
}

}  // namespace lockstep::ops

#else

namespace lockstep::ops {

VocabularyKernels vocabulary_kernels_avx512() {
  return {nullptr, nullptr, nullptr};
}

}  // namespace lockstep::ops

#endif
