// SPDX-License-Identifier: Apache-2.0
// Rows are independent: each thread takes some.
#include "ops/rms_norm/rms_norm_bf16_cpu.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kGrain = 8;  // rows a task

}  // namespace

void rms_norm_forward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* x,
                               const numerics::Bf16* gain, float eps, int64_t rows, int64_t h,
                               numerics::Bf16* y, float* inverse_rms) {
  context.parallel_ranges(rows, kGrain, [&](int64_t begin, int64_t end) {
    rms_norm_forward_bf16_ref(x + begin * h, gain, eps, end - begin, h, y + begin * h,
                              inverse_rms == nullptr ? nullptr : inverse_rms + begin);
  });
}

void rms_norm_backward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dy,
                                const numerics::Bf16* x, const numerics::Bf16* gain, const float* inverse_rms,
                                int64_t rows, int64_t h, numerics::Bf16* dh) {
  context.parallel_ranges(rows, kGrain, [&](int64_t begin, int64_t end) {
    rms_norm_backward_bf16_ref(dy + begin * h, x + begin * h, gain, inverse_rms + begin, end - begin, h,
                               dh + begin * h);
  });
}

}  // namespace lockstep::ops
