// SPDX-License-Identifier: Apache-2.0
// Kernels over a vector type V. Included only by the files that define a V in an unnamed namespace, so that
// code for different instruction sets never shares a symbol.
//
// V has: kWidth, Reg; load, store, set1, add, sub, mul, fma, round (nearest even), max, highest (of the
// lanes); usable (scaled logit s: kAbsent where the logit is -inf; *ok cleared where it is out of range);
// scale (p * 2^e, +0 where e < floor; e is an integer <= 0 and floor >= -126); above (x where x > limit, else
// +0); where_nonzero (x where p is not 0, else y); Sums with add (weights and entropy terms) and total;
// store_fixed (weights as integers).
#pragma once

#include "ops/vocabulary/vocabulary_row.h"

namespace lockstep::ops {

static_assert(numerics::kVocabTile == 128 && numerics::kWeightFractionBits == 44,
              "the kernels are written for these");

// Stands for a logit of -inf, so that differences stay finite: it weighs nothing beside any score in range.
inline constexpr float kAbsent = -0x1p23F;
// A double plus this is rounded to nearest even to an integer that sits in its low bits (|x| < 2^51).
inline constexpr double kRounder = 0x1.8p52;
inline constexpr uint64_t kRounderBits = 0x4338000000000000ULL;

// 2^f on [-1/2, 1/2]: numerics::exp2_fraction.
template <class V>
inline typename V::Reg exp2_fraction(typename V::Reg f) {
  typename V::Reg p = V::set1(numerics::kExp2Coefficients[0]);
  for (int i = 1; i <= numerics::kExp2Degree; ++i) p = V::fma(p, f, V::set1(numerics::kExp2Coefficients[i]));
  return p;
}

// Weights before rounding to an integer, with those that round to 0 (at most half of 2^-44) already +0.
template <class V>
inline typename V::Reg tile_weight(typename V::Reg s, typename V::Reg max) {
  const typename V::Reg n = V::round(s);
  return V::above(V::scale(exp2_fraction<V>(V::sub(s, n)), V::sub(n, max), -60.0F), 0x1p-45F);
}

// Scaled logits s of a full tile; returns their largest n as *max, or false when all are -inf or one is out
// of range (*ok).
template <class V>
inline bool scale_tile(const float* logits, float scale, float* s, typename V::Reg* max, bool* ok) {
  const typename V::Reg factor = V::set1(scale);
  typename V::Reg highest = V::set1(kAbsent);
  for (int i = 0; i < 128; i += V::kWidth) {
    const typename V::Reg logit = V::load(logits + i);
    const typename V::Reg x = V::usable(logit, V::mul(logit, factor), ok);
    V::store(s + i, x);
    highest = V::max(highest, x);
  }
  const float top = V::highest(highest);
  *max = V::round(V::set1(top));  // rounding is monotonic
  return *ok && top != kAbsent;
}
template <class V>
inline int32_t first_lane(typename V::Reg x) {
  float lanes[V::kWidth];
  V::store(lanes, x);
  return static_cast<int32_t>(lanes[0]);
}

template <class V>
inline VocabularyTile vocabulary_tile(const float* logits, float scale, bool* ok) {
  float s[128];
  typename V::Reg max;
  if (!scale_tile<V>(logits, scale, s, &max, ok)) return {0, false, 0, 0};
  typename V::Sums sums = V::no_sums();
  for (int i = 0; i < 128; i += V::kWidth) {
    const typename V::Reg x = V::load(s + i);
    V::add(&sums, tile_weight<V>(x, max), V::sub(max, x));
  }
  uint64_t w = 0;
  uint64_t e = 0;
  V::total(sums, &w, &e);
  // Every one of the 128 terms carries the bits of kRounder.
  return {first_lane<V>(max), true, w - 128 * kRounderBits, static_cast<int64_t>(e - 128 * kRounderBits)};
}

// Copies a last, short tile and fills it up with -inf.
inline constexpr float kMinusInfinity = -__builtin_inff();
template <class V>
inline void fill_tile(const float* logits, int64_t count, float* tile) {
  for (int64_t i = 0; i < count; ++i) tile[i] = logits[i];
  for (int64_t i = count; i < 128; ++i) tile[i] = kMinusInfinity;
}

template <class V>
inline bool vocabulary_tiles(const float* logits, int64_t n, float scale, VocabularyTile* tiles) {
  bool ok = true;
  int64_t i = 0;
  for (; i + 128 <= n; i += 128) *tiles++ = vocabulary_tile<V>(logits + i, scale, &ok);
  if (i < n) {
    float tile[128];
    fill_tile<V>(logits + i, n - i, tile);
    *tiles = vocabulary_tile<V>(tile, scale, &ok);
  }
  return ok;
}

template <class V>
inline bool vocabulary_weights(const float* logits, int64_t count, float scale, int32_t* max_exponent,
                               uint64_t* w) {
  float tile[128];
  if (count < 128) {
    fill_tile<V>(logits, count, tile);
    logits = tile;
  }
  float s[128];
  typename V::Reg max;
  bool ok = true;
  if (!scale_tile<V>(logits, scale, s, &max, &ok)) return false;
  *max_exponent = first_lane<V>(max);
  uint64_t all[128];
  uint64_t* out = count < 128 ? all : w;
  for (int i = 0; i < 128; i += V::kWidth) V::store_fixed(out + i, tile_weight<V>(V::load(s + i), max));
  for (int64_t i = 0; i < count && out != w; ++i) w[i] = all[i];
  return true;
}

template <class V>
inline void gradient_step(float* g, const GradientFactors& f) {
  bool ok = true;
  const typename V::Reg logit = V::load(g);
  const typename V::Reg s = V::usable(logit, V::mul(logit, V::set1(f.scale)), &ok);
  const typename V::Reg n = V::round(s);
  const typename V::Reg max = V::set1(f.max);
  const typename V::Reg a = V::scale(exp2_fraction<V>(V::sub(s, n)), V::sub(n, max), -126.0F);
  const typename V::Reg p = V::mul(a, V::set1(f.inverse_sum));
  typename V::Reg out = V::mul(V::set1(-f.c), p);
  if (f.entropic) {
    const typename V::Reg log_p = V::mul(V::set1(f.ln2), V::sub(V::sub(s, max), V::set1(f.log2_sum)));
    const typename V::Reg term = V::mul(p, V::add(log_p, V::set1(f.entropy)));
    out = V::where_nonzero(p, V::fma(V::set1(-f.ce), term, out), out);
  }
  V::store(g, out);
}

template <class V>
inline void vocabulary_gradient(float* logits, int64_t n, const GradientFactors& factors) {
  int64_t i = 0;
  for (; i + V::kWidth <= n; i += V::kWidth) gradient_step<V>(logits + i, factors);
  if (i < n) {
    float rest[V::kWidth];
    for (int64_t x = 0; x < V::kWidth; ++x) rest[x] = i + x < n ? logits[i + x] : kMinusInfinity;
    gradient_step<V>(rest, factors);
    for (int64_t x = 0; i + x < n; ++x) logits[i + x] = rest[x];
  }
}

}  // namespace lockstep::ops
