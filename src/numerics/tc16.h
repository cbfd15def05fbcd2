// SPDX-License-Identifier: Apache-2.0
// TC16, the bfloat16 tensor-core step of docs/numerics.md: a binary32 accumulator plus 16 products. This
// scalar text is the definition; row versions for a CPU must equal it.
#pragma once

#include <cstdint>

#include "numerics/host_device.h"

namespace lockstep::numerics {

inline constexpr int kTc16Products = 16;
inline constexpr uint32_t kTc16NanBits = 0x7FFFFFFFU;
inline constexpr int kTc16LowestExponent = -133;  // of the common exponent
inline constexpr int kTc16FractionBits = 25;      // terms are multiples of 2^(e - 25)

// magnitude * 2^(exponent - fraction bits of its kind); a zero has magnitude 0.
struct Tc16Term {
  uint32_t magnitude;
  int exponent;
  bool negative, is_infinite, is_nan;
};

// The accumulator: magnitude is a multiple of 2^(exponent - 23).
LOCKSTEP_HD Tc16Term tc16_accumulator(uint32_t bits) {
  const uint32_t field = (bits >> 23) & 255U;
  const uint32_t fraction = bits & 0x7FFFFFU;
  const bool special = field == 255U;
  return {field == 0 ? fraction : fraction | 0x800000U, field == 0 ? -126 : static_cast<int>(field) - 127,
          (bits >> 31) != 0, special && fraction == 0, special && fraction != 0};
}

// A product of two bfloat16: magnitude is a multiple of 2^(exponent - 14), the exponent is not normalised.
LOCKSTEP_HD Tc16Term tc16_product(uint16_t a, uint16_t b) {
  const uint32_t field_a = (a >> 7) & 255U;
  const uint32_t field_b = (b >> 7) & 255U;
  const uint32_t fraction_a = a & 127U;
  const uint32_t fraction_b = b & 127U;
  const uint32_t value_a = field_a == 0 ? fraction_a : fraction_a | 128U;
  const uint32_t value_b = field_b == 0 ? fraction_b : fraction_b | 128U;
  const int exponent_a = field_a == 0 ? -126 : static_cast<int>(field_a) - 127;
  const int exponent_b = field_b == 0 ? -126 : static_cast<int>(field_b) - 127;
  const bool any_nan = (field_a == 255U && fraction_a != 0) || (field_b == 255U && fraction_b != 0);
  const bool any_infinite = field_a == 255U || field_b == 255U;
  const bool any_zero = value_a == 0 || value_b == 0;
  return {value_a * value_b, exponent_a + exponent_b, ((a ^ b) & 0x8000U) != 0,
          any_infinite && !any_nan && !any_zero, any_nan || (any_infinite && any_zero)};
}

// magnitude << left, then >> (e - exponent), toward zero.
LOCKSTEP_HD int64_t tc16_aligned(const Tc16Term& term, int left, int e) {
  if (term.magnitude == 0) return 0;
  const int right = e - term.exponent;
  const uint64_t wide = static_cast<uint64_t>(term.magnitude) << left;
  const auto kept = right > 63 ? int64_t{0} : static_cast<int64_t>(wide >> right);
  return term.negative ? -kept : kept;
}

// sum * 2^(e - 25) toward zero, as binary32 bits; too large: infinity; zero: +0.
LOCKSTEP_HD uint32_t tc16_round(int64_t sum, int e) {
  const uint32_t sign = sum < 0 ? 0x80000000U : 0U;
  auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  int quantum = e - kTc16FractionBits;  // exponent of the last place of `magnitude`
  while (magnitude >= (uint64_t{1} << 24)) {
    magnitude >>= 1;
    ++quantum;
  }
  while (quantum < -149) {
    magnitude >>= 1;
    ++quantum;
  }
  if (magnitude == 0) return 0;
  while (magnitude < (uint64_t{1} << 23) && quantum > -149) {
    magnitude <<= 1;
    --quantum;
  }
  if (magnitude < (uint64_t{1} << 23)) return sign | static_cast<uint32_t>(magnitude);
  const int field = quantum + 23 + 127;
  if (field >= 255) return sign | 0x7F800000U;
  return sign | (static_cast<uint32_t>(field) << 23) | (static_cast<uint32_t>(magnitude) & 0x7FFFFFU);
}

// One step, as bits. Element k of a meets element k of b; `stride` between elements of b.
LOCKSTEP_HD uint32_t tc16_step_bits(uint32_t acc, const uint16_t* a, const uint16_t* b, int64_t stride = 1) {
  const Tc16Term c = tc16_accumulator(acc);
  bool nan = c.is_nan;
  bool plus = c.is_infinite && !c.negative;
  bool minus = c.is_infinite && c.negative;
  int e = kTc16LowestExponent;
  if (c.magnitude != 0 && c.exponent > e) e = c.exponent;
  for (int k = 0; k < kTc16Products; ++k) {
    const Tc16Term p = tc16_product(a[k], b[k * stride]);
    nan = nan || p.is_nan;
    plus = plus || (p.is_infinite && !p.negative);
    minus = minus || (p.is_infinite && p.negative);
    if (p.magnitude != 0 && p.exponent > e) e = p.exponent;
  }
  if (nan || (plus && minus)) return kTc16NanBits;
  if (plus) return 0x7F800000U;
  if (minus) return 0xFF800000U;
  int64_t sum = tc16_aligned(c, kTc16FractionBits - 23, e);
  for (int k = 0; k < kTc16Products; ++k) {
    sum += tc16_aligned(tc16_product(a[k], b[k * stride]), kTc16FractionBits - 14, e);
  }
  return tc16_round(sum, e);
}

LOCKSTEP_HD float tc16_step(float acc, const uint16_t a[16], const uint16_t b[16]) {
  return float_from_bits(tc16_step_bits(float_bits(acc), a, b));
}

}  // namespace lockstep::numerics
