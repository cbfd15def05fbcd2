// SPDX-License-Identifier: Apache-2.0
// One block: the count of steps is read by all and raised by one.
#include "device/cuda/launch_early.h"
#include "ops/vocabulary/next_tokens_cuda.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    next_tokens(const int32_t* tokens, const float* log_probs, int64_t rows, NextTokenRows next,
                TokenHistory history) {
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int64_t step = *history.steps;
  __syncthreads();
  if (threadIdx.x == 0) *history.steps = static_cast<int32_t>(step + 1);
  if (threadIdx.x < 2) history.faults[2 * step + threadIdx.x] = history.fault_words[threadIdx.x];
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) {
    DrawnRow& kept = history.rows[step * rows + r];
    if (next.ids[r] < 0) {
      kept = {};
      continue;
    }
    const int32_t token = tokens[r];
    kept = {token, log_probs[r]};
    next.ids[r] = token;
    next.positions[r] += 1;
    next.run_positions[r] += 1;
    next.keys[r] += 1;
    next.draws[r].position += 1;
  }
}

}  // namespace

void next_tokens_cuda(const cuda::Context& context, const int32_t* tokens, const float* log_probs,
                      int64_t rows, const NextTokenRows& next, const TokenHistory& history) {
  if (rows == 0) return;
  cuda::launch_early(context, "next tokens", next_tokens, dim3(1), kThreads, 0, tokens, log_probs, rows, next,
                     history);
}

}  // namespace lockstep::ops
