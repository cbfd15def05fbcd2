// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary/vocabulary_row.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "numerics/math.h"
#include "ops/vocabulary/vocabulary_kernel.h"

namespace lockstep::ops {
namespace {

struct Avx2 {
  static constexpr int kWidth = 8;
  using Reg = __m256;
  struct Sums {
    __m256i w, e;
  };
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static Reg set1(float a) { return _mm256_set1_ps(a); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg round(Reg a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static float highest(Reg a) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }
  static Reg usable(Reg logit, Reg s, bool* ok) {
    const Reg absent = _mm256_cmp_ps(logit, set1(kMinusInfinity), _CMP_EQ_OQ);
    const Reg size = _mm256_andnot_ps(set1(-0.0F), s);
    const Reg in_range = _mm256_cmp_ps(size, set1(numerics::kMaxScore), _CMP_LT_OQ);
    *ok &= _mm256_movemask_ps(_mm256_or_ps(absent, in_range)) == 0xFF;
    return _mm256_blendv_ps(s, set1(kAbsent), absent);
  }
  static Reg scale(Reg p, Reg e, float floor) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvttps_epi32(e), _mm256_set1_epi32(127));
    const Reg power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    return _mm256_andnot_ps(_mm256_cmp_ps(e, set1(floor), _CMP_LT_OQ), mul(p, power));
  }
  static Reg above(Reg x, float limit) { return _mm256_and_ps(x, _mm256_cmp_ps(x, set1(limit), _CMP_GT_OQ)); }
  static Reg where_nonzero(Reg p, Reg x, Reg y) {
    return _mm256_blendv_ps(x, y, _mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_EQ_OQ));
  }
  static __m256d low(Reg a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
  static __m256d high(Reg a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
  static __m256i fixed(__m256d x) {
    return _mm256_castpd_si256(_mm256_fmadd_pd(x, _mm256_set1_pd(0x1p44), _mm256_set1_pd(kRounder)));
  }
  static Sums no_sums() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static void add(Sums* sums, Reg weight, Reg distance) {
    const __m256d w0 = low(weight);
    const __m256d w1 = high(weight);
    sums->w = _mm256_add_epi64(sums->w, _mm256_add_epi64(fixed(w0), fixed(w1)));
    sums->e = _mm256_add_epi64(sums->e, _mm256_add_epi64(fixed(_mm256_mul_pd(w0, low(distance))),
                                                         fixed(_mm256_mul_pd(w1, high(distance)))));
  }
  static uint64_t sum(__m256i a) {
    uint64_t x[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), a);
    return x[0] + x[1] + x[2] + x[3];
  }
  static void total(const Sums& sums, uint64_t* w, uint64_t* e) {
    *w = sum(sums.w);
    *e = sum(sums.e);
  }
  static void store_fixed(uint64_t* out, Reg weight) {
    const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(kRounderBits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_sub_epi64(fixed(low(weight)), bits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4), _mm256_sub_epi64(fixed(high(weight)), bits));
  }
};

}  // namespace

VocabularyKernels vocabulary_kernels_avx2() {
  return {vocabulary_tiles<Avx2>, vocabulary_weights<Avx2>, vocabulary_gradient<Avx2>};
}

}  // namespace lockstep::ops

#else

namespace lockstep::ops {

VocabularyKernels vocabulary_kernels_avx2() {
  return {nullptr, nullptr, nullptr};
}

}  // namespace lockstep::ops

#endif
