// SPDX-License-Identifier: Apache-2.0
// Chains of TC16 (tc16.h) for a CPU: rows times 16 columns at a time, the same bits as tc16_step on every
// input.
//
// A product of two bfloat16 is exact in binary32, and so is its multiple by 2^(25 - e); the conversion to an
// integer truncates toward zero, as the step does. So a step is: e by integer maxima of sums of exponents, 17
// integers per column, their sum, one conversion that truncates. It holds where -101 <= e <= 126 and the sum
// fits in 32 bits; all else (specials, tiny and huge terms, groups of zeros) goes through tc16_slow_step.
#pragma once

#include <cstdint>

#include "numerics/tc16.h"

namespace lockstep::numerics {

inline constexpr int kTc16Columns = 16;  // of a tile

// Exponents of operands: the row's carries the bias, so that a valid sum E = e + 102 is in [1, 228]. A sum
// with a zero operand is below every sum without one; a sum with an infinity or NaN is above 228.
inline constexpr int kTc16Bias = 102;
inline constexpr int kTc16HighestSum = 228;
inline constexpr int kTc16ZeroExponent = -400;
inline constexpr int kTc16SpecialExponent = 1000;
inline constexpr int kTc16LargestZeroSum = 229 - 400;  // smallest sum of two that are not zero: -150

// One element of a row operand, ready to be broadcast: its value and its exponent twice.
struct Tc16RowElement {
  float value;
  uint32_t exponents;  // two int16
};
// One group of a column operand: element k of column c at [k][c].
struct alignas(64) Tc16ColumnGroup {
  float value[kTc16Products][kTc16Columns];
  int16_t exponent[kTc16Products][kTc16Columns];
};

constexpr int64_t tc16_groups(int64_t k) {
  return (k + kTc16Products - 1) / kTc16Products;
}

// out [tc16_groups(k) * 16]: x[0], x[stride], ..., filled up with zeros.
void tc16_expand_row(const uint16_t* x, int64_t stride, int64_t k, Tc16RowElement* out);
// out [tc16_groups(k)]: element (i, c) is x[i * k_stride + c * column_stride] for i < k and c < columns <=
// 16, else zero.
void tc16_expand_columns(const uint16_t* x, int64_t k_stride, int64_t column_stride, int64_t k,
                         int64_t columns, Tc16ColumnGroup* out);
// The elements alone, [tc16_groups(k)][16][16], as tc16_expand_columns(out, 16, 1, k, 16, ...) takes them
// fastest.
void tc16_pack_columns(const uint16_t* x, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
                       uint16_t* out);

// acc[r * ld + c], c < 16: the chain goes on from the value there over `groups` groups of row r (at
// rows + r * row_stride) and the columns.
using Tc16Tile = void (*)(const Tc16RowElement* rows, int64_t row_stride, int64_t n_rows,
                          const Tc16ColumnGroup* columns, int64_t groups, float* acc, int64_t ld);
Tc16Tile tc16_tile_portable();
// Null where the compiler's target lacks the instructions.
Tc16Tile tc16_tile_avx2();
Tc16Tile tc16_tile_avx512();

// One step of one row by the definition; row [16], acc [16].
void tc16_slow_step(const Tc16RowElement* row, const Tc16ColumnGroup& columns, float* acc);

}  // namespace lockstep::numerics
