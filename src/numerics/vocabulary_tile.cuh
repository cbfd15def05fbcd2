// SPDX-License-Identifier: Apache-2.0
// One tile of 128 ids on the device, for kernels that read logits and for the epilogue of the product that
// makes them. The tile's logits are spread over kGroup neighbouring threads of a warp, kCount each.
#pragma once

#include <cstdint>

#include "numerics/constants.h"
#include "numerics/math.h"

namespace lockstep::numerics {

// M_j, W_j, A_j; the same in all threads of the group.
struct TileSums {
  int32_t max_exponent;
  uint64_t sum;
  int64_t entropy_sum;
};
// Instead of M_j: every logit is -inf (the tile is skipped); a logit has no place in a softmax.
inline constexpr int32_t kTileEmpty = INT32_MIN;
inline constexpr int32_t kTileInvalid = INT32_MAX;

inline constexpr int32_t kRoundEvenBits = 0x4B400000;  // of kRoundEvenMagic
inline constexpr double kTileRounder = 0x1.8p52;  // x + this: x to the nearest even integer, in the low bits
inline constexpr uint64_t kTileRounderBits = 0x4338000000000000ULL;
// Stands for an absent logit's s: far below every score, so that its weight is 0.
inline constexpr float kTileAbsent = -0x1p23F;
inline constexpr int kTileLowestExponent = -60;

// What is added to e below so that its place in a double's exponent field needs no other correction: p's bias
// becomes a double's, and 2^44 is multiplied in.
inline constexpr int kTileExponentBias = kWeightFractionBits + 1023 - 127;

// p * 2^e * 2^44 as a double, p = exp2_fraction in [0.7, 1.5); biased = e + kTileExponentBias.
__device__ __forceinline__ double tile_scaled(float p, int biased) {
  const uint32_t bits = float_bits(p);
  const uint32_t high = (bits >> 3) + (static_cast<uint32_t>(biased) << 20);
  return __hiloint2double(static_cast<int>(high), static_cast<int>(bits << 29));
}

// n as bits (n + kRoundEvenBits) and s - n.
__device__ __forceinline__ int tile_round(float s, float* fraction) {
  const float shifted = s + kRoundEvenMagic;
  *fraction = s - (shifted - kRoundEvenMagic);
  return static_cast<int>(float_bits(shifted));
}

// w of one usable score relative to 2^max.
__device__ __forceinline__ uint64_t tile_weight(float s, int32_t max) {
  float f;
  const int n = tile_round(s, &f) - kRoundEvenBits;
  if (n - max < kTileLowestExponent) return 0;
  const double rounded = tile_scaled(exp2_fraction(f), n - max + kTileExponentBias) + kTileRounder;
  return double_bits(rounded) - kTileRounderBits;
}

template <int kGroup, typename T>
__device__ __forceinline__ T group_sum(T x) {
#pragma unroll
  for (int width = 1; width < kGroup; width *= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, width);
  return x;
}

// Scores of the group's logits (-inf for ids that do not exist): s[i] = logit * scale, kTileAbsent for -inf.
// Returns the largest over the group; +inf where a logit is out of range.
template <int kCount, int kGroup>
__device__ __forceinline__ float tile_scores(const float (&logits)[kCount], float scale, float (&s)[kCount]) {
  bool usable = true;
  float top = kTileAbsent;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = logits[i] * scale;
    usable = usable && fabsf(s[i]) < kMaxScore;
    top = fmaxf(top, s[i]);
  }
  if (!usable) {
    bool in_range = true;
    top = kTileAbsent;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!(fabsf(s[i]) < kMaxScore)) {
        in_range = in_range && logits[i] == -__builtin_inff();
        s[i] = kTileAbsent;
      }
      top = fmaxf(top, s[i]);
    }
    if (!in_range) top = __builtin_inff();
  }
#pragma unroll
  for (int width = 1; width < kGroup; width *= 2) {
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFU, top, width));
  }
  return top;
}

// All 32 threads of the warp take part. kEntropy false: entropy_sum is 0.
template <int kCount, int kGroup, bool kEntropy>
__device__ __forceinline__ TileSums vocabulary_tile(const float (&logits)[kCount], float scale) {
  static_assert(kCount * kGroup == kVocabTile);
  float s[kCount];
  const float top = tile_scores<kCount, kGroup>(logits, scale, s);
  const bool has_weight = top > kTileAbsent && top < kMaxScore;
  float unused;
  const int max_bits = tile_round(has_weight ? top : 0.0F, &unused);  // rounding is monotonic
  const auto max = static_cast<float>(max_bits - kRoundEvenBits);
  const int base = max_bits - kTileExponentBias;
  constexpr int kLowest = kTileLowestExponent + kTileExponentBias;
  uint64_t sum = 0;
  uint64_t entropy = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float f;
    int e = tile_round(s[i], &f) - base;
    e = e < kLowest ? kLowest : e;  // weighs 0 all the same: below 2^-45
    const double x = tile_scaled(exp2_fraction(f), e);
    const uint64_t w = double_bits(x + kTileRounder);
    sum += w;
    if constexpr (kEntropy) {
      const float distance = w == kTileRounderBits ? 0.0F : max - s[i];
      entropy += double_bits(fma(x, static_cast<double>(distance), kTileRounder));
    }
  }
  TileSums out;
  out.max_exponent = has_weight ? max_bits - kRoundEvenBits : (top < 0 ? kTileEmpty : kTileInvalid);
  sum = group_sum<kGroup>(sum) - kVocabTile * kTileRounderBits;
  out.sum = has_weight ? sum : 0;
  out.entropy_sum = 0;
  if constexpr (kEntropy) {
    entropy = group_sum<kGroup>(entropy) - kVocabTile * kTileRounderBits;
    out.entropy_sum = has_weight ? static_cast<int64_t>(entropy) : 0;
  }
  return out;
}

}  // namespace lockstep::numerics
