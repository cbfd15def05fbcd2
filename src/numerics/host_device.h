// SPDX-License-Identifier: Apache-2.0
// LOCKSTEP_HD marks a function compiled by the host and by the device compiler from one text.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_HD __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HD inline
#endif

namespace lockstep::numerics {

// Bits of a value and back; g++, clang and nvcc share the builtin, std::bit_cast is host code for nvcc.
LOCKSTEP_HD uint32_t float_bits(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
LOCKSTEP_HD float float_from_bits(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
LOCKSTEP_HD uint64_t double_bits(double x) {
  return __builtin_bit_cast(uint64_t, x);
}
LOCKSTEP_HD double double_from_bits(uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}

}  // namespace lockstep::numerics
