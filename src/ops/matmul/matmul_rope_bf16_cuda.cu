// SPDX-License-Identifier: Apache-2.0
// RoPE and rounding of a product that was stored in binary32: for head sizes that the product's own epilogue
// does not take. One thread a pair of columns.
#include "device/cuda/launch.h"
#include "numerics/bfloat16.h"
#include "ops/matmul/matmul_bf16_cuda.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 256;

// The first rope.columns columns in pairs (i, i + head_size/2) of a head, then the others two by two.
__global__ void rope_kernel(const float* y, int64_t ldy, int64_t m, int64_t n, RopeEpilogue rope, Bf16* out,
                            int64_t ldo) {
  const int64_t pairs = (n + 1) / 2;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = index / pairs;
  if (row >= m) return;
  const int64_t pair = index % pairs;
  const float* in = y + row * ldy;
  Bf16* to = out + row * ldo;
  if (2 * pair >= rope.columns) {
    for (int64_t column = 2 * pair; column < 2 * pair + 2 && column < n; ++column)
      to[column] = numerics::float_to_bfloat16(in[column]);
    return;
  }
  const int64_t half = rope.head_size / 2;
  const int64_t i = pair % half;
  const int64_t first = pair / half * rope.head_size + i;
  const int64_t at = rope.positions[row] * half + i;
  const float a = in[first];
  const float b = in[first + half];
  const float cosine = rope.cos[at];
  const float sine = rope.sin[at];
  to[first] = numerics::float_to_bfloat16(fmaf(a, cosine, -(b * sine)));
  to[first + half] = numerics::float_to_bfloat16(fmaf(b, cosine, a * sine));
}

}  // namespace

void matmul_rope_bf16_cuda(const cuda::Context& context, const float* y, int64_t ldy, int64_t m, int64_t n,
                           const RopeEpilogue& rope, Bf16* out, int64_t ldo) {
  if (m == 0 || n == 0) return;
  rope_kernel<<<cuda::blocks_for(m * ((n + 1) / 2), kThreads), kThreads, 0, context.stream()>>>(
      y, ldy, m, n, rope, out, ldo);
  cuda::check_launch("rotating and rounding a product");
}

}  // namespace lockstep::ops
