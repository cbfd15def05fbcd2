// SPDX-License-Identifier: Apache-2.0
#include "numerics/tc16_tile.h"

#if defined(__AVX2__)
#include <immintrin.h>

namespace lockstep::numerics {
namespace {

// 8 columns: the integers of a step, their sum, the new accumulator.
struct Half {
  __m256i exponent;  // E
  __m256 scale;      // 2^(25 - e)
  __m256i first, second;

  void begin(__m256i sums, __m256 acc) {
    const __m256i field = _mm256_srli_epi32(_mm256_slli_epi32(_mm256_castps_si256(acc), 1), 24);
    exponent = _mm256_max_epi32(sums, _mm256_sub_epi32(field, _mm256_set1_epi32(127 - kTc16Bias)));
    scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), exponent), 23));
    first = _mm256_cvttps_epi32(_mm256_mul_ps(acc, scale));
    second = _mm256_setzero_si256();
  }
  __m256i term(__m256 a, const float* b) const {
    return _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_mul_ps(a, _mm256_load_ps(b)), scale));
  }
  // Sign bits of lanes that need the slow step: E outside [1, 228] or a sum beyond 32 bits.
  __m256i refused() const {
    const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(exponent, _mm256_set1_epi32(kTc16HighestSum)),
                                            _mm256_cmpgt_epi32(_mm256_set1_epi32(1), exponent));
    const __m256i sum = _mm256_add_epi32(first, second);
    const __m256i wrapped = _mm256_and_si256(_mm256_xor_si256(first, sum), _mm256_xor_si256(second, sum));
    return _mm256_or_si256(outside, wrapped);
  }
  __m256 result() const {
    const __m256i sum = _mm256_add_epi32(first, second);
    const __m256 nearest = _mm256_cvtepi32_ps(sum);
    // 2^31 converts back to -2^31; the difference is right all the same, modulo 2^32.
    const __m256i excess = _mm256_sub_epi32(_mm256_cvttps_epi32(nearest), sum);
    const __m256i away = _mm256_cmpgt_epi32(_mm256_sign_epi32(excess, sum), _mm256_setzero_si256());
    const __m256i toward_zero = _mm256_add_epi32(_mm256_castps_si256(nearest), away);
    return _mm256_mul_ps(_mm256_castsi256_ps(toward_zero),
                         _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
};

inline void step(const Tc16RowElement* row, const Tc16ColumnGroup& columns, float* acc) {
  __m256i even = _mm256_set1_epi16(-1000);
  __m256i odd = even;
  for (int k = 0; k < kTc16Products; k += 2) {
    const __m256i a = _mm256_set1_epi32(static_cast<int>(row[k].exponents));
    const __m256i b = _mm256_set1_epi32(static_cast<int>(row[k + 1].exponents));
    even = _mm256_max_epi16(
        even, _mm256_add_epi16(a, _mm256_load_si256(reinterpret_cast<const __m256i*>(columns.exponent[k]))));
    odd = _mm256_max_epi16(
        odd,
        _mm256_add_epi16(b, _mm256_load_si256(reinterpret_cast<const __m256i*>(columns.exponent[k + 1]))));
  }
  const __m256i sums = _mm256_max_epi16(even, odd);
  Half low, high;
  low.begin(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(sums)), _mm256_loadu_ps(acc));
  high.begin(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(sums, 1)), _mm256_loadu_ps(acc + 8));
  for (int k = 0; k < kTc16Products / 2; ++k) {
    const __m256 a = _mm256_set1_ps(row[k].value);
    low.first = _mm256_add_epi32(low.first, low.term(a, columns.value[k]));
    high.first = _mm256_add_epi32(high.first, high.term(a, columns.value[k] + 8));
  }
  for (int k = kTc16Products / 2; k < kTc16Products; ++k) {
    const __m256 a = _mm256_set1_ps(row[k].value);
    low.second = _mm256_add_epi32(low.second, low.term(a, columns.value[k]));
    high.second = _mm256_add_epi32(high.second, high.term(a, columns.value[k] + 8));
  }
  const __m256i refused = _mm256_or_si256(low.refused(), high.refused());
  if (__builtin_expect(_mm256_movemask_ps(_mm256_castsi256_ps(refused)) != 0, 0)) {
    tc16_slow_step(row, columns, acc);
    return;
  }
  _mm256_storeu_ps(acc, low.result());
  _mm256_storeu_ps(acc + 8, high.result());
}

void tile(const Tc16RowElement* rows, int64_t row_stride, int64_t n_rows, const Tc16ColumnGroup* columns,
          int64_t groups, float* acc, int64_t ld) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < n_rows; ++r)
      step(rows + r * row_stride + g * kTc16Products, columns[g], acc + r * ld);
  }
}

}  // namespace

Tc16Tile tc16_tile_avx2() {
  return tile;
}

}  // namespace lockstep::numerics

#else

namespace lockstep::numerics {

Tc16Tile tc16_tile_avx2() {
  return nullptr;
}

}  // namespace lockstep::numerics

#endif
