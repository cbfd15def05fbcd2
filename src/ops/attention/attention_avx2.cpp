// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_tasks.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "numerics/math.h"
#include "ops/attention/attention_kernel.h"

namespace lockstep::ops {
namespace {

// -1 for the first n of 8 lanes when read from element 8 - n.
constexpr int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

struct Avx2 {
  static constexpr int kWidth = 8;
  static constexpr int kRows = 4;
  static constexpr int kVectors = 3;
  using Reg = __m256;
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static __m256i mask(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + (8 - n)));
  }
  static Reg load_part(const float* p, int64_t n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store_part(float* p, Reg a, int64_t n) { _mm256_maskstore_ps(p, mask(n), a); }
  static Reg set1(float a) { return _mm256_set1_ps(a); }
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
  static bool in_range(Reg a) {
    const Reg size = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a);
    return _mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(numerics::kMaxScore), _CMP_LT_OQ)) == 0xFF;
  }
  static Reg scale(Reg p, Reg e) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvttps_epi32(e), _mm256_set1_epi32(127));
    const Reg power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    const Reg low = _mm256_cmp_ps(e, _mm256_set1_ps(numerics::kWeightFloor), _CMP_LT_OQ);
    return _mm256_andnot_ps(low, _mm256_mul_ps(p, power));
  }
  static void add_lanes(float* lanes, const float* p, int n) {
    Reg sum = load(lanes);
    for (int j = 0; j < n; j += 8) sum = _mm256_add_ps(sum, load(p + j));
    store(lanes, sum);
  }
};

}  // namespace

AttentionKernels attention_kernels_avx2() {
  return {forward_segment<Avx2>, backward_tile<Avx2>};
}

}  // namespace lockstep::ops

#else

namespace lockstep::ops {

AttentionKernels attention_kernels_avx2() {
  return {nullptr, nullptr};
}

}  // namespace lockstep::ops

#endif
