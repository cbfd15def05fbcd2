// SPDX-License-Identifier: Apache-2.0
// bfloat16 and binary16 as bits, converted in integer operations: the same on every machine.
#pragma once

#include <cstdint>

#include "numerics/host_device.h"

namespace lockstep::numerics {

using Bf16 = uint16_t;  // bits of a bfloat16

// Nearest, ties to even. NaN: the upper half with the quiet bit set.
LOCKSTEP_HD uint16_t float_to_bfloat16(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40U : rounded);
}

// Exact.
LOCKSTEP_HD float bfloat16_to_float(uint16_t x) {
  return float_from_bits(static_cast<uint32_t>(x) << 16);
}

// Exact; subnormals become normal, a NaN keeps its payload and becomes quiet.
LOCKSTEP_HD float float16_to_float(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000U) << 16;
  const uint32_t exponent = (x >> 10) & 31U;
  const uint32_t fraction = x & 0x3FFU;
  if (exponent == 31U) {
    return float_from_bits(sign | 0x7F800000U | (fraction << 13) | (fraction != 0 ? 0x400000U : 0U));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // exact
    return float_from_bits(sign | float_bits(magnitude));
  }
  return float_from_bits(sign | ((exponent + 112U) << 23) | (fraction << 13));
}

}  // namespace lockstep::numerics
