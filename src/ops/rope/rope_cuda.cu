// SPDX-License-Identifier: Apache-2.0
// A warp a row; a thread rotates four neighbouring pairs at a time.
#include "device/cuda/launch.h"
#include "numerics/element.cuh"
#include "ops/rope/rope_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::Pack;

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / 32;

// x and out may be one and the same.
template <typename Out, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    rotate(const float* cos, const float* sin, const int32_t* positions, int64_t rows, int heads, int half,
           bool inverse, const float* x, int64_t ldx, Out* out, int64_t ldo) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + (threadIdx.x >> 5);
  if (row >= rows) return;
  const int64_t at = static_cast<int64_t>(positions[row]) * half;
  cos += at;
  sin += at;
  x += row * ldx;
  out += row * ldo;
  const int quads = (half + 3) / 4;
#pragma unroll 4
  for (int item = static_cast<int>(threadIdx.x) & 31; item < heads * quads; item += 32) {
    const int head = item / quads;
    const int i = (item - head * quads) * 4;
    const int left = half - i;
    const int64_t low = static_cast<int64_t>(head) * 2 * half + i;
    const Pack<float, 4> a = numerics::load_pack<4, kAligned>(x + low, left);
    const Pack<float, 4> b = numerics::load_pack<4, kAligned>(x + low + half, left);
    const Pack<float, 4> c = numerics::load_pack<4, kAligned>(cos + i, left);
    const Pack<float, 4> sine = numerics::load_pack<4, kAligned>(sin + i, left);
    float first[4];
    float second[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float s = inverse ? -sine[k] : sine[k];
      first[k] = fmaf(a[k], c[k], -(b[k] * s));
      second[k] = fmaf(b[k], c[k], a[k] * s);
    }
    numerics::store_pack<kAligned>(out + low, left, numerics::pack<Out>(first));
    numerics::store_pack<kAligned>(out + low + half, left, numerics::pack<Out>(second));
  }
}

template <typename Out>
void rope(const cuda::Context& context, const RopeDeviceTable& table, const int32_t* positions, int64_t rows,
          int64_t heads, bool inverse, const float* x, int64_t ldx, Out* out, int64_t ldo) {
  if (rows == 0 || heads == 0) return;
  const int64_t half = table.head_size / 2;
  const bool aligned = half % 4 == 0 && numerics::packs_fit<4>(x, ldx) && numerics::packs_fit<4>(out, ldo) &&
                       numerics::packs_fit<4>(table.cos, half) && numerics::packs_fit<4>(table.sin, half);
  const auto kernel = aligned ? rotate<Out, true> : rotate<Out, false>;
  kernel<<<cuda::blocks_for(rows, kRowsPerBlock), kThreads, 0, context.stream()>>>(
      table.cos, table.sin, positions, rows, static_cast<int>(heads), static_cast<int>(half), inverse, x, ldx,
      out, ldo);
  cuda::check_launch("RoPE");
}

}  // namespace

void rope_fp32_cuda(const cuda::Context& context, const RopeDeviceTable& table, const int32_t* positions,
                    int64_t rows, int64_t heads, bool inverse, float* x, int64_t ldx) {
  rope<float>(context, table, positions, rows, heads, inverse, x, ldx, x, ldx);
}
void rope_bf16_cuda(const cuda::Context& context, const RopeDeviceTable& table, const int32_t* positions,
                    int64_t rows, int64_t heads, bool inverse, const float* x, int64_t ldx, Bf16* out,
                    int64_t ldo) {
  rope<Bf16>(context, table, positions, rows, heads, inverse, x, ldx, out, ldo);
}

}  // namespace lockstep::ops
