// SPDX-License-Identifier: Apache-2.0
// For tests only: results of MPFR and the distance of ours from them in units of the last place.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::testing {

using MpfrFunction = int (*)(mpfr_t, const mpfr_t, mpfr_rnd_t);

// A value of 200 bits: some 90 more than any result below needs for its last place.
class Reference {
 public:
  Reference() { mpfr_init2(value_, 200); }
  ~Reference() { mpfr_clear(value_); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  void set(MpfrFunction function, double x) {
    mpfr_set_d(value_, x, MPFR_RNDN);
    function(value_, value_, MPFR_RNDN);
  }

  // |got - value| in last places of value's binade in a format of `digits` bits with smallest exponent
  // `lowest` (of the last place) and largest finite number `largest`.
  double distance(double got, int digits, int lowest, double largest) {
    if (mpfr_cmpabs_ui(value_, 0) == 0) return got == 0 ? 0 : std::numeric_limits<double>::infinity();
    const auto exponent = static_cast<int>(mpfr_get_exp(value_));
    const int place = std::max(exponent - digits, lowest);
    if (std::isinf(got)) {
      // Right when the value rounds to infinity: at least half a place above the largest number.
      mpfr_t edge;
      mpfr_init2(edge, 200);
      mpfr_set_d(edge, largest, MPFR_RNDN);
      mpfr_t half;
      mpfr_init2(half, 200);
      mpfr_set_ui_2exp(half, 1, static_cast<int>(std::ilogb(largest)) - digits, MPFR_RNDN);
      mpfr_add(edge, edge, half, MPFR_RNDN);
      const bool right = mpfr_cmp(value_, edge) >= 0 && got > 0;
      mpfr_clear(edge);
      mpfr_clear(half);
      return right ? 0 : std::numeric_limits<double>::infinity();
    }
    mpfr_t difference;
    mpfr_init2(difference, 200);
    mpfr_sub_d(difference, value_, got, MPFR_RNDN);
    mpfr_mul_2si(difference, difference, -place, MPFR_RNDN);
    const double distance = std::abs(mpfr_get_d(difference, MPFR_RNDU));
    mpfr_clear(difference);
    return distance;
  }
  double distance64(double got) { return distance(got, 53, -1074, std::numeric_limits<double>::max()); }
  double distance32(float got) {
    return distance(static_cast<double>(got), 24, -149,
                    static_cast<double>(std::numeric_limits<float>::max()));
  }

 private:
  mpfr_t value_;
};

// The largest distance over inputs, and where.
struct Worst {
  double distance = 0;
  double at = 0;

  void add(double d, double x) {
    if (!(d <= distance)) {
      distance = d;
      at = x;
    }
  }
};

}  // namespace lockstep::testing
