// SPDX-License-Identifier: Apache-2.0
// Vectors as arrays of 8, for --isa scalar and for machines without AVX2.
#include <bit>
#include <cmath>

#include "numerics/math.h"
#include "ops/attention/attention_kernel.h"

namespace lockstep::ops {
namespace {

struct Portable {
  static constexpr int kWidth = 8;
  static constexpr int kRows = 1;
  static constexpr int kVectors = 4;
  struct Reg {
    float x[kWidth];
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
  static Reg load_part(const float* p, int64_t n) {
    return each([&](int i) { return i < n ? p[i] : 0.0F; });
  }
  static void store(float* p, const Reg& a) {
    for (int i = 0; i < kWidth; ++i) p[i] = a.x[i];
  }
  static void store_part(float* p, const Reg& a, int64_t n) {
    for (int i = 0; i < n; ++i) p[i] = a.x[i];
  }
  static Reg set1(float a) {
    return each([&](int) { return a; });
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
  static bool in_range(const Reg& a) {
    bool ok = true;
    for (int i = 0; i < kWidth; ++i) ok &= a.x[i] < numerics::kMaxScore && a.x[i] > -numerics::kMaxScore;
    return ok;
  }
  // Masked elements may hold anything, also NaN: the exponent is clamped before it becomes an integer.
  static Reg scale(const Reg& p, const Reg& e) {
    constexpr float kFloor = numerics::kWeightFloor;
    return each([&](int i) {
      const float clamped = e.x[i] >= kFloor ? (e.x[i] > 0.0F ? 0.0F : e.x[i]) : kFloor;
      const float power = std::bit_cast<float>((static_cast<int32_t>(clamped) + 127) << 23);
      return e.x[i] < kFloor ? 0.0F : p.x[i] * power;
    });
  }
  static void add_lanes(float* lanes, const float* p, int n) {
    for (int j = 0; j < n; ++j) lanes[j % 8] = lanes[j % 8] + p[j];
  }
};

}  // namespace

AttentionKernels attention_kernels_portable() {
  return {forward_segment<Portable>, backward_tile<Portable>};
}

}  // namespace lockstep::ops
