// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding matrix and their gradient.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"

namespace lockstep::ops {

// out[r, :] = table[ids[r], :], table [vocab, h]; every id is in [0, vocab).
void embedding_forward_ref(const float* table, const int32_t* ids, int64_t rows, int64_t h, float* out);
void embedding_forward_cpu(const cpu::Context& context, const float* table, const int32_t* ids, int64_t rows,
                           int64_t h, float* out);

// image[ids[r], :] += gradient_to_fixed(dh[r, :]), each token on its own. Returns false when an element is
// out of range (bound: gradient_bound of all tokens of the step); it is then not added.
[[nodiscard]] bool embedding_gradient_ref(const float* dh, const int32_t* ids, int64_t rows, int64_t h,
                                          float bound, int64_t* image);
[[nodiscard]] bool embedding_gradient_cpu(const cpu::Context& context, const float* dh, const int32_t* ids,
                                          int64_t rows, int64_t h, float bound, int64_t* image);

}  // namespace lockstep::ops
