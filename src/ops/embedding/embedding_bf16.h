// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding matrix and their gradient in profile bf16.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"

namespace lockstep::ops {

// out[r, :] = table[ids[r], :], the weights themselves.
void embedding_forward_bf16_ref(const numerics::Bf16* table, const int32_t* ids, int64_t rows, int64_t h,
                                numerics::Bf16* out);

// image[ids[r], :] += gradient_to_fixed(dh[r, :]) for the rows given; returns as in embedding.h.
[[nodiscard]] bool embedding_gradient_bf16_ref(const numerics::Bf16* dh, const int32_t* ids, int64_t rows,
                                               int64_t h, float bound, int64_t* image);

}  // namespace lockstep::ops
