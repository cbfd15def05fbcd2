// SPDX-License-Identifier: Apache-2.0
// The embedding of profile bf16 on a CPU: the bits of embedding_bf16.h.
#pragma once

#include "device/cpu/context.h"
#include "ops/embedding/embedding_bf16.h"

namespace lockstep::ops {

void embedding_forward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* table, const int32_t* ids,
                                int64_t rows, int64_t h, numerics::Bf16* out);
[[nodiscard]] bool embedding_gradient_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dh,
                                               const int32_t* ids, int64_t rows, int64_t h, float bound,
                                               int64_t* image);

}  // namespace lockstep::ops
