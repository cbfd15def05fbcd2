// SPDX-License-Identifier: Apache-2.0
// Elements of activations and weights as kernels see them: float (profile fp32) or Bf16 (profile bf16), in
// vectors of up to 16 bytes. Conversions are those of bfloat16.h.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"

namespace lockstep::numerics {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(Bf16 x) {
  return bfloat16_to_float(x);
}

// Two bfloat16, `low` in the low half. One instruction, but for NaN, where it would lose the payload.
__device__ __forceinline__ uint32_t pack_bfloat16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  if (isunordered(low, high)) {
    packed = float_to_bfloat16(low) | (static_cast<uint32_t>(float_to_bfloat16(high)) << 16);
  }
  return packed;
}

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float x) {
  return float_to_bfloat16(x);
}

// kCount elements of T in one load or store (8 or 16 bytes).
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  static_assert(kCount % 2 == 0);
  static constexpr int kWords = static_cast<int>(kCount * sizeof(T) / 4);
  uint32_t words[kWords];

  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return float_from_bits(words[i]);
    } else {
      return float_from_bits((i & 1) != 0 ? words[i / 2] & 0xFFFF0000U : words[i / 2] << 16);
    }
  }
};

template <typename T, int kCount>
__device__ __forceinline__ Pack<T, kCount> pack(const float (&x)[kCount]) {
  Pack<T, kCount> out;
#pragma unroll
  for (int i = 0; i < Pack<T, kCount>::kWords; ++i) {
    if constexpr (sizeof(T) == 4) {
      out.words[i] = float_bits(x[i]);
    } else {
      out.words[i] = pack_bfloat16(x[2 * i], x[2 * i + 1]);
    }
  }
  return out;
}

// kAligned: p is aligned to the pack and all of it is there. Else the first `left` elements one by one, the
// others +0.
template <int kCount, bool kAligned, typename T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* p, int64_t left) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const Pack<T, kCount>*>(p);
  } else {
    Pack<T, kCount> out;
#pragma unroll
    for (int i = 0; i < Pack<T, kCount>::kWords; ++i) {
      if constexpr (sizeof(T) == 4) {
        out.words[i] = i < left ? float_bits(p[i]) : 0;
      } else {
        const uint32_t low = 2 * i < left ? p[2 * i] : 0;
        const uint32_t high = 2 * i + 1 < left ? p[2 * i + 1] : 0;
        out.words[i] = low | (high << 16);
      }
    }
    return out;
  }
}
template <bool kAligned, typename T, int kCount>
__device__ __forceinline__ void store_pack(T* p, int64_t left, const Pack<T, kCount>& x) {
  if constexpr (kAligned) {
    *reinterpret_cast<Pack<T, kCount>*>(p) = x;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= left) break;
      if constexpr (sizeof(T) == 4) {
        p[i] = float_from_bits(x.words[i]);
      } else {
        p[i] = static_cast<T>(x.words[i / 2] >> ((i & 1) * 16));
      }
    }
  }
}

// Whether rows of `stride` elements from p on can be moved in packs of kCount.
template <int kCount, typename T>
inline bool packs_fit(const T* p, int64_t stride) {
  return stride % kCount == 0 && reinterpret_cast<uintptr_t>(p) % (kCount * sizeof(T)) == 0;
}

}  // namespace lockstep::numerics
