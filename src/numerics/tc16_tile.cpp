// SPDX-License-Identifier: Apache-2.0
// Operands, the slow step and the portable tile.
#include "numerics/tc16_tile.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "numerics/bfloat16.h"

namespace lockstep::numerics {
namespace {

// Unbiased, or one of the two markers. All in 16 bits, so that compilers make vectors of it.
inline int16_t exponent_of(uint16_t x) {
  const auto magnitude = static_cast<int16_t>(x & 0x7FFFU);
  const auto field = static_cast<int16_t>(std::max<int16_t>(static_cast<int16_t>(magnitude >> 7), 1) - 127);
  const int16_t e = magnitude == 0 ? static_cast<int16_t>(kTc16ZeroExponent) : field;
  return magnitude >= 0x7F80 ? static_cast<int16_t>(kTc16SpecialExponent) : e;
}

void expand_group(const uint16_t (*x)[kTc16Columns], Tc16ColumnGroup* out) {
  for (int k = 0; k < kTc16Products; ++k) {
    for (int c = 0; c < kTc16Columns; ++c) out->value[k][c] = bfloat16_to_float(x[k][c]);
    for (int c = 0; c < kTc16Columns; ++c) out->exponent[k][c] = exponent_of(x[k][c]);
  }
}

// One group of element (i, c) = x[i * k_stride + c * column_stride], zeros past k and columns.
void gather_group(const uint16_t* x, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
                  uint16_t (*out)[kTc16Columns]) {
  const int64_t rows = std::min<int64_t>(k, kTc16Products);
  if (rows < kTc16Products || columns < kTc16Columns) {
    std::memset(out, 0, sizeof(uint16_t) * kTc16Products * kTc16Columns);
  }
  if (column_stride == 1) {
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(out[i], x + i * k_stride, static_cast<size_t>(columns) * sizeof(uint16_t));
    return;
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t i = 0; i < rows; ++i) out[i][c] = x[i * k_stride + c * column_stride];
  }
}

}  // namespace

void tc16_expand_row(const uint16_t* x, int64_t stride, int64_t k, Tc16RowElement* out) {
  for (int64_t i = 0; i < k; ++i) {
    const uint16_t value = x[i * stride];
    int e = exponent_of(value);
    if (e != kTc16ZeroExponent && e != kTc16SpecialExponent) e += kTc16Bias;
    out[i] = {bfloat16_to_float(value), static_cast<uint16_t>(e) * 0x10001U};
  }
  constexpr Tc16RowElement kZero{0.0F, static_cast<uint16_t>(kTc16ZeroExponent) * 0x10001U};
  for (int64_t i = k; i < tc16_groups(k) * kTc16Products; ++i) out[i] = kZero;
}

void tc16_pack_columns(const uint16_t* x, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
                       uint16_t* out) {
  for (int64_t i = 0; i < k; i += kTc16Products, out += kTc16Products * kTc16Columns) {
    gather_group(x + i * k_stride, k_stride, column_stride, k - i, columns,
                 reinterpret_cast<uint16_t(*)[kTc16Columns]>(out));
  }
}

void tc16_expand_columns(const uint16_t* x, int64_t k_stride, int64_t column_stride, int64_t k,
                         int64_t columns, Tc16ColumnGroup* out) {
  uint16_t group[kTc16Products][kTc16Columns];
  const bool packed = k_stride == kTc16Columns && column_stride == 1 && columns == kTc16Columns;
  for (int64_t i = 0; i < k; i += kTc16Products, ++out) {
    if (packed && i + kTc16Products <= k) {
      expand_group(reinterpret_cast<const uint16_t(*)[kTc16Columns]>(x + i * k_stride), out);
      continue;
    }
    gather_group(x + i * k_stride, k_stride, column_stride, k - i, columns, group);
    expand_group(group, out);
  }
}

void tc16_slow_step(const Tc16RowElement* row, const Tc16ColumnGroup& columns, float* acc) {
  uint16_t a[kTc16Products];
  int16_t exponents[kTc16Products];
  for (int k = 0; k < kTc16Products; ++k) {
    a[k] = static_cast<uint16_t>(float_bits(row[k].value) >> 16);
    exponents[k] = static_cast<int16_t>(row[k].exponents & 0xFFFFU);
  }
  int16_t highest[kTc16Columns];
  std::fill(highest, highest + kTc16Columns, int16_t{-1000});
  for (int k = 0; k < kTc16Products; ++k) {
    for (int c = 0; c < kTc16Columns; ++c) {
      const auto sum = static_cast<int16_t>(exponents[k] + columns.exponent[k][c]);
      highest[c] = std::max(highest[c], sum);
    }
  }
  for (int c = 0; c < kTc16Columns; ++c) {
    const uint32_t bits = float_bits(acc[c]);
    if (highest[c] <= kTc16LargestZeroSum && (bits & 0x7F800000U) != 0x7F800000U) {
      acc[c] = acc[c] + 0.0F;  // nothing is added; -0 becomes +0
      continue;
    }
    uint16_t b[kTc16Products];
    for (int k = 0; k < kTc16Products; ++k)
      b[k] = static_cast<uint16_t>(float_bits(columns.value[k][c]) >> 16);
    acc[c] = float_from_bits(tc16_step_bits(bits, a, b));
  }
}

namespace {

// Toward zero to 24 bits, times 2^(E - 127); |sum| < 2^32.
inline float rounded(int64_t sum, int biased) {
  const auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int drop = std::max(0, static_cast<int>(std::bit_width(magnitude)) - 24);
  const auto kept = static_cast<float>(magnitude >> drop << drop);  // exact
  return (sum < 0 ? -kept : kept) * float_from_bits(static_cast<uint32_t>(biased) << 23);
}

void portable_step(const Tc16RowElement* row, const Tc16ColumnGroup& columns, float* acc) {
  int16_t highest[kTc16Columns];
  for (int c = 0; c < kTc16Columns; ++c) {
    highest[c] =
        static_cast<int16_t>(static_cast<int>((float_bits(acc[c]) >> 23) & 255U) - (127 - kTc16Bias));
  }
  for (int k = 0; k < kTc16Products; ++k) {
    const auto e = static_cast<int16_t>(row[k].exponents & 0xFFFFU);
    for (int c = 0; c < kTc16Columns; ++c) {
      highest[c] = std::max(highest[c], static_cast<int16_t>(e + columns.exponent[k][c]));
    }
  }
  bool usable = true;
  float scale[kTc16Columns];
  for (int c = 0; c < kTc16Columns; ++c) {
    usable = usable && highest[c] >= 1 && highest[c] <= kTc16HighestSum;
    scale[c] = float_from_bits(static_cast<uint32_t>(254 - highest[c]) << 23);  // 2^(25 - e)
  }
  if (!usable) return tc16_slow_step(row, columns, acc);
  int32_t first[kTc16Columns];
  int32_t second[kTc16Columns] = {};
  for (int c = 0; c < kTc16Columns; ++c) first[c] = static_cast<int32_t>(acc[c] * scale[c]);
  for (int k = 0; k < kTc16Products; ++k) {
    const float a = row[k].value;
    int32_t* sum = k < kTc16Products / 2 ? first : second;
    for (int c = 0; c < kTc16Columns; ++c) sum[c] += static_cast<int32_t>(a * columns.value[k][c] * scale[c]);
  }
  for (int c = 0; c < kTc16Columns; ++c) acc[c] = rounded(int64_t{first[c]} + second[c], highest[c]);
}

void portable_tile(const Tc16RowElement* rows, int64_t row_stride, int64_t n_rows,
                   const Tc16ColumnGroup* columns, int64_t groups, float* acc, int64_t ld) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < n_rows; ++r) {
      portable_step(rows + r * row_stride + g * kTc16Products, columns[g], acc + r * ld);
    }
  }
}

}  // namespace

Tc16Tile tc16_tile_portable() {
  return portable_tile;
}

}  // namespace lockstep::numerics
