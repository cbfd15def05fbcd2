// SPDX-License-Identifier: Apache-2.0
// Sum of squares of a tensor's gradient: blocks of 65,536 elements, each over 128 lanes in binary64
// (numerics/reduce.h), blocks ascending from +0.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"

namespace lockstep::ops {

// g = gradient_from_fixed(image[i]) converted to binary64; lane chain fma(g, g, lane).
double gradient_sum_of_squares_ref(const int64_t* image, int64_t n);
double gradient_sum_of_squares_cpu(const cpu::Context& context, const int64_t* image, int64_t n);

}  // namespace lockstep::ops
