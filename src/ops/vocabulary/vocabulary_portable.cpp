// SPDX-License-Identifier: Apache-2.0
// Vectors as arrays of 8, for --isa scalar and for machines without AVX2.
#include <bit>
#include <cmath>

#include "numerics/math.h"
#include "ops/vocabulary/vocabulary_kernel.h"

namespace lockstep::ops {
namespace {

struct Portable {
  static constexpr int kWidth = 8;
  struct Reg {
    float x[kWidth];
  };
  struct Sums {
    uint64_t w, e;
  };
  template <typename Function>
  static Reg each(const Function& function) {
    Reg out;
    for (int i = 0; i < kWidth; ++i) out.x[i] = function(i);
    return out;
  }
  static Reg load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static void store(float* p, const Reg& a) {
    for (int i = 0; i < kWidth; ++i) p[i] = a.x[i];
  }
  static Reg set1(float a) {
    return each([&](int) { return a; });
  }
  static Reg add(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.x[i] + b.x[i]; });
  }
  static Reg sub(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.x[i] - b.x[i]; });
  }
  static Reg mul(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.x[i] * b.x[i]; });
  }
  static Reg fma(const Reg& a, const Reg& b, const Reg& c) {
    return each([&](int i) { return std::fma(a.x[i], b.x[i], c.x[i]); });
  }
  static Reg round(const Reg& a) {
    return each([&](int i) { return numerics::round_even(a.x[i]); });
  }
  static Reg max(const Reg& a, const Reg& b) {
    return each([&](int i) { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; });
  }
  static float highest(const Reg& a) {
    float best = a.x[0];
    for (int i = 1; i < kWidth; ++i) best = a.x[i] > best ? a.x[i] : best;
    return best;
  }
  static Reg usable(const Reg& logit, const Reg& s, bool* ok) {
    return each([&](int i) {
      if (logit.x[i] == kMinusInfinity) return kAbsent;
      *ok &= s.x[i] < numerics::kMaxScore && s.x[i] > -numerics::kMaxScore;
      return s.x[i];
    });
  }
  static Reg scale(const Reg& p, const Reg& e, float floor) {
    return each([&](int i) {
      if (!(e.x[i] >= floor && e.x[i] <= 0.0F)) return 0.0F;
      return p.x[i] * std::bit_cast<float>((static_cast<int32_t>(e.x[i]) + 127) << 23);
    });
  }
  static Reg above(const Reg& x, float limit) {
    return each([&](int i) { return x.x[i] > limit ? x.x[i] : 0.0F; });
  }
  static Reg where_nonzero(const Reg& p, const Reg& x, const Reg& y) {
    return each([&](int i) { return p.x[i] != 0.0F ? x.x[i] : y.x[i]; });
  }
  static uint64_t fixed(double x) { return std::bit_cast<uint64_t>(std::fma(x, 0x1p44, kRounder)); }
  static Sums no_sums() { return {0, 0}; }
  static void add(Sums* sums, const Reg& weight, const Reg& distance) {
    for (int i = 0; i < kWidth; ++i) {
      const double w = weight.x[i];
      sums->w += fixed(w);
      sums->e += fixed(w * static_cast<double>(distance.x[i]));
    }
  }
  static void total(const Sums& sums, uint64_t* w, uint64_t* e) {
    *w = sums.w;
    *e = sums.e;
  }
  static void store_fixed(uint64_t* out, const Reg& weight) {
    for (int i = 0; i < kWidth; ++i) out[i] = fixed(weight.x[i]) - kRounderBits;
  }
};

}  // namespace

VocabularyKernels vocabulary_kernels_portable() {
  return {vocabulary_tiles<Portable>, vocabulary_weights<Portable>, vocabulary_gradient<Portable>};
}

}  // namespace lockstep::ops
