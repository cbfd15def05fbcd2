// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding_bf16_cpu.h"

#include <atomic>

#include "numerics/fixed_point.h"

namespace lockstep::ops {

void embedding_forward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* table, const int32_t* ids,
                                int64_t rows, int64_t h, numerics::Bf16* out) {
  constexpr int64_t kGrain = 32;
  context.parallel_ranges(rows, kGrain, [&](int64_t begin, int64_t end) {
    embedding_forward_bf16_ref(table, ids + begin, end - begin, h, out + begin * h);
  });
}

// A task takes columns: two rows may have the same id.
bool embedding_gradient_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dh, const int32_t* ids,
                                 int64_t rows, int64_t h, float bound, int64_t* image) {
  constexpr int64_t kGrain = 64;
  std::atomic<bool> in_range{true};
  context.parallel_ranges(h, kGrain, [&](int64_t begin, int64_t end) {
    bool good = true;
    for (int64_t r = 0; r < rows; ++r) {
      int64_t* to = image + ids[r] * h;
      for (int64_t j = begin; j < end; ++j) {
        const float x = numerics::bfloat16_to_float(dh[r * h + j]);
        if (numerics::in_gradient_range(x, bound)) {
          to[j] += numerics::gradient_to_fixed(x);
        } else {
          good = false;
        }
      }
    }
    if (!good) in_range = false;
  });
  return in_range;
}

}  // namespace lockstep::ops
