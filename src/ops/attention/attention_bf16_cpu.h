// SPDX-License-Identifier: Apache-2.0
// Attention of profile bf16 on a CPU, by emulation of TC16 (numerics/tc16_tile.h): the bits of
// attention_bf16.h.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"
#include "ops/attention/attention_bf16.h"

namespace lockstep::ops {

// As attention_forward_bf16_ref with segments of kAttentionSegment.
[[nodiscard]] bool attention_forward_bf16_cpu(const cpu::Context& context, const AttentionShape& shape,
                                              const numerics::Bf16* q, int64_t ldq,
                                              const AttentionRunBf16* runs, int64_t n_runs,
                                              numerics::Bf16* out, int64_t ldo, float* max_exponent,
                                              float* inverse_sum);
// As attention_backward_bf16_ref; chunk: a multiple of 16.
void attention_backward_bf16_cpu(const cpu::Context& context, const AttentionShape& shape,
                                 const numerics::Bf16* qkv, int64_t ld, const numerics::Bf16* out,
                                 const numerics::Bf16* d_out, const float* max_exponent,
                                 const float* inverse_sum, const AttentionSample* samples, int64_t n_samples,
                                 const AttentionRope& rope, numerics::Bf16* d_qkv,
                                 int64_t chunk = numerics::kGradientChunk);

}  // namespace lockstep::ops
