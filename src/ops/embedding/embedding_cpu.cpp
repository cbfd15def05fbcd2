// SPDX-License-Identifier: Apache-2.0
// Forward: rows in parallel. Gradient: columns in parallel, so that one id met twice is added by one thread.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "numerics/fixed_point.h"
#include "ops/embedding/embedding.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kColumns = 64;  // of a gradient task

bool add_columns(const float* dh, const int32_t* ids, int64_t rows, int64_t h, int64_t begin, int64_t end,
                 float bound, int64_t* image) {
  bool in_range = true;
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = dh + row * h;
    int64_t* out = image + ids[row] * h;
    for (int64_t i = begin; i < end; ++i) {
      if (numerics::in_gradient_range(in[i], bound)) {
        out[i] += numerics::gradient_to_fixed(in[i]);
      } else {
        in_range = false;
      }
    }
  }
  return in_range;
}

}  // namespace

void embedding_forward_cpu(const cpu::Context& context, const float* table, const int32_t* ids, int64_t rows,
                           int64_t h, float* out) {
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, h));
  context.parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(out + row * h, table + ids[row] * h, static_cast<size_t>(h) * sizeof(float));
    }
  });
}

bool embedding_gradient_cpu(const cpu::Context& context, const float* dh, const int32_t* ids, int64_t rows,
                            int64_t h, float bound, int64_t* image) {
  std::atomic<bool> in_range = true;
  context.parallel_ranges(h, kColumns, [&](int64_t begin, int64_t end) {
    if (!add_columns(dh, ids, rows, h, begin, end, bound, image)) in_range = false;
  });
  return in_range;
}

}  // namespace lockstep::ops
