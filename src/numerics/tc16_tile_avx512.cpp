// SPDX-License-Identifier: Apache-2.0
// Compiled with AVX-512 flags: nothing here may be shared with other files. The text follows
// tc16_tile_avx2.cpp.
#include "numerics/tc16_tile.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#if defined(__GNUC__) && !defined(__clang__)
// False alarms of GCC 12 inside its own header (_mm512_undefined_ps).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

namespace lockstep::numerics {
namespace {

inline __m256i exponents_at(const int16_t* x) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(x));
}

inline void step(const Tc16RowElement* row, const Tc16ColumnGroup& columns, float* acc) {
  __m256i even = _mm256_set1_epi16(-1000);
  __m256i odd = even;
  for (int k = 0; k < kTc16Products; k += 2) {
    const __m256i a = _mm256_set1_epi32(static_cast<int>(row[k].exponents));
    const __m256i b = _mm256_set1_epi32(static_cast<int>(row[k + 1].exponents));
    even = _mm256_max_epi16(even, _mm256_add_epi16(a, exponents_at(columns.exponent[k])));
    odd = _mm256_max_epi16(odd, _mm256_add_epi16(b, exponents_at(columns.exponent[k + 1])));
  }
  const __m512i sums = _mm512_cvtepi16_epi32(_mm256_max_epi16(even, odd));
  const __m512 start = _mm512_loadu_ps(acc);
  const __m512i field = _mm512_srli_epi32(_mm512_slli_epi32(_mm512_castps_si512(start), 1), 24);
  const __m512i exponent =
      _mm512_max_epi32(sums, _mm512_sub_epi32(field, _mm512_set1_epi32(127 - kTc16Bias)));
  const __m512 scale =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(254), exponent), 23));
  __m512i first = _mm512_cvttps_epi32(_mm512_mul_ps(start, scale));
  __m512i second = _mm512_setzero_si512();
  for (int k = 0; k < kTc16Products / 2; ++k) {
    const __m512 p = _mm512_mul_ps(_mm512_set1_ps(row[k].value), _mm512_load_ps(columns.value[k]));
    first = _mm512_add_epi32(first, _mm512_cvttps_epi32(_mm512_mul_ps(p, scale)));
  }
  for (int k = kTc16Products / 2; k < kTc16Products; ++k) {
    const __m512 p = _mm512_mul_ps(_mm512_set1_ps(row[k].value), _mm512_load_ps(columns.value[k]));
    second = _mm512_add_epi32(second, _mm512_cvttps_epi32(_mm512_mul_ps(p, scale)));
  }
  const __m512i sum = _mm512_add_epi32(first, second);
  const __m512i wrapped = _mm512_and_si512(_mm512_xor_si512(first, sum), _mm512_xor_si512(second, sum));
  const __mmask16 refused = _mm512_cmp_epu32_mask(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)),
                                                  _mm512_set1_epi32(kTc16HighestSum - 1), _MM_CMPINT_NLE) |
                            _mm512_movepi32_mask(wrapped);
  if (__builtin_expect(refused != 0, 0)) {
    tc16_slow_step(row, columns, acc);
    return;
  }
  const __m512 kept = _mm512_cvt_roundepi32_ps(sum, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  _mm512_storeu_ps(acc, _mm512_mul_ps(kept, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))));
}

void tile(const Tc16RowElement* rows, int64_t row_stride, int64_t n_rows, const Tc16ColumnGroup* columns,
          int64_t groups, float* acc, int64_t ld) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < n_rows; ++r)
      step(rows + r * row_stride + g * kTc16Products, columns[g], acc + r * ld);
  }
}

}  // namespace

Tc16Tile tc16_tile_avx512() {
  return tile;
}

}  // namespace lockstep::numerics

#else

namespace lockstep::numerics {

Tc16Tile tc16_tile_avx512() {
  return nullptr;
}

}  // namespace lockstep::numerics

#endif
