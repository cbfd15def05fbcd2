// SPDX-License-Identifier: Apache-2.0
// Compiled with AVX-512 flags: nothing here may be shared with other files (attention_kernel.h).
#include "ops/attention/attention_tasks.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#if defined(__GNUC__) && !defined(__clang__)
// False alarms of GCC 12 inside its own header (_mm512_undefined_ps).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "numerics/math.h"
#include "ops/attention/attention_kernel.h"

namespace lockstep::ops {
namespace {

struct Avx512 {
  static constexpr int kWidth = 16;
  static constexpr int kRows = 4;
  static constexpr int kVectors = 4;
  using Reg = __m512;
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static __mmask16 mask(int64_t n) { return static_cast<__mmask16>((1U << n) - 1); }
  static Reg load_part(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_part(float* p, Reg a, int64_t n) { _mm512_mask_storeu_ps(p, mask(n), a); }
  static Reg set1(float a) { return _mm512_set1_ps(a); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg round(Reg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static float highest(Reg a) { return _mm512_reduce_max_ps(a); }
  static bool in_range(Reg a) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(a), _mm512_set1_ps(numerics::kMaxScore), _CMP_LT_OQ) == 0xFFFF;
  }
  static Reg scale(Reg p, Reg e) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvttps_epi32(e), _mm512_set1_epi32(127));
    const Reg power = _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
    const __mmask16 kept = _mm512_cmp_ps_mask(e, _mm512_set1_ps(numerics::kWeightFloor), _CMP_NLT_UQ);
    return _mm512_maskz_mul_ps(kept, p, power);
  }
  static void add_lanes(float* lanes, const float* p, int n) {
    __m256 sum = _mm256_loadu_ps(lanes);
    for (int j = 0; j < n; j += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(p + j));
    _mm256_storeu_ps(lanes, sum);
  }
};

}  // namespace

AttentionKernels attention_kernels_avx512() {
  return {forward_segment<Avx512>, backward_tile<Avx512>};
}

}  // namespace lockstep::ops

#else

namespace lockstep::ops {

AttentionKernels attention_kernels_avx512() {
  return {nullptr, nullptr};
}

}  // namespace lockstep::ops

#endif
