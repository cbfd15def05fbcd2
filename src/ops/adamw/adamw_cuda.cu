// SPDX-License-Identifier: Apache-2.0
// Blocks stride over chunks of the arena and walk the table of slices along with them.
#include <algorithm>

#include "device/cuda/launch.h"
#include "numerics/element.cuh"
#include "numerics/fixed_point.h"
#include "ops/adamw/adamw_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::Pack;

constexpr int kThreads = 256;
constexpr int kChunk = kThreads * 4;
constexpr int kBlocksPerSm = 5;

struct State {
  float m, v, w;
};

__device__ __forceinline__ State step(const AdamWFactors& f, float decay, int64_t image, State s) {
  const float g = numerics::gradient_from_fixed(image) * f.clip;
  s.m = fmaf(f.beta1, s.m, f.one_minus_beta1 * g);
  s.v = fmaf(f.beta2, s.v, (f.one_minus_beta2 * g) * g);
  const float u = (s.m * f.correction1) / (sqrtf(s.v * f.correction2) + f.eps);
  s.w = fmaf(f.negative_lr, fmaf(decay, s.w, u), s.w);
  return s;
}

struct Arenas {
  const int64_t* __restrict__ image;
  float* __restrict__ m;
  float* __restrict__ v;
  float* __restrict__ w;
  Bf16* __restrict__ weights;  // null: not written
};

// Four elements at i, all of one slice.
template <bool kWeights>
__device__ __forceinline__ void step_pack(const Arenas& a, const AdamWFactors& f, float decay, int64_t i) {
  const longlong2 low = __ldcs(reinterpret_cast<const longlong2*>(a.image + i));
  const longlong2 high = __ldcs(reinterpret_cast<const longlong2*>(a.image + i + 2));
  const Pack<float, 4> m = numerics::load_pack<4, true>(a.m + i, 4);
  const Pack<float, 4> v = numerics::load_pack<4, true>(a.v + i, 4);
  const Pack<float, 4> w = numerics::load_pack<4, true>(a.w + i, 4);
  const int64_t image[4] = {low.x, low.y, high.x, high.y};
  float out_m[4];
  float out_v[4];
  float out_w[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const State s = step(f, decay, image[k], {m[k], v[k], w[k]});
    out_m[k] = s.m;
    out_v[k] = s.v;
    out_w[k] = s.w;
  }
  numerics::store_pack<true>(a.m + i, 4, numerics::pack<float>(out_m));
  numerics::store_pack<true>(a.v + i, 4, numerics::pack<float>(out_v));
  numerics::store_pack<true>(a.w + i, 4, numerics::pack<float>(out_w));
  if constexpr (kWeights) numerics::store_pack<true>(a.weights + i, 4, numerics::pack<Bf16>(out_w));
}

template <bool kWeights>
__device__ __noinline__ void step_one(const Arenas& a, const AdamWFactors& f, float decay, int64_t i) {
  const State s = step(f, decay, a.image[i], {a.m[i], a.v[i], a.w[i]});
  a.m[i] = s.m;
  a.v[i] = s.v;
  a.w[i] = s.w;
  if constexpr (kWeights) a.weights[i] = numerics::float_to_bfloat16(s.w);
}

template <bool kWeights>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    adamw(Arenas a, AdamWFactors f, const AdamWSlice* __restrict__ slices, int n_slices, int64_t arena_size) {
  int s = 0;  // the first slice that ends after the chunk's start
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk; begin < arena_size;
       begin += static_cast<int64_t>(gridDim.x) * kChunk) {
    while (s < n_slices && slices[s].offset + slices[s].size <= begin) ++s;
    if (s == n_slices) return;
    const AdamWSlice slice = slices[s];
    const int64_t i = begin + static_cast<int64_t>(threadIdx.x) * 4;
    if (slice.offset <= begin && begin + kChunk <= slice.offset + slice.size) {
      step_pack<kWeights>(a, f, slice.decays != 0 ? f.weight_decay : 0.0F, i);
      continue;
    }
    int t = s;
    for (int64_t at = i; at < i + 4 && at < arena_size; ++at) {
      while (t < n_slices && slices[t].offset + slices[t].size <= at) ++t;
      if (t < n_slices && slices[t].offset <= at) {
        step_one<kWeights>(a, f, slices[t].decays != 0 ? f.weight_decay : 0.0F, at);
      }
    }
  }
}

template <bool kWeights>
void launch(const cuda::Context& context, const AdamWFactors& factors, const AdamWSlice* slices,
            int64_t n_slices, int64_t arena_size, const Arenas& arenas) {
  if (arena_size == 0 || n_slices == 0) return;
  const unsigned blocks =
      std::min(cuda::blocks_for(arena_size, kChunk), static_cast<unsigned>(context.sms() * kBlocksPerSm));
  adamw<kWeights><<<blocks, kThreads, 0, context.stream()>>>(arenas, factors, slices,
                                                             static_cast<int>(n_slices), arena_size);
  cuda::check_launch("AdamW");
}

}  // namespace

void adamw_fp32_cuda(const cuda::Context& context, const AdamWFactors& factors, const AdamWSlice* slices,
                     int64_t n_slices, int64_t arena_size, const int64_t* image, float* m, float* v,
                     float* w) {
  launch<false>(context, factors, slices, n_slices, arena_size, {image, m, v, w, nullptr});
}
void adamw_bf16_cuda(const cuda::Context& context, const AdamWFactors& factors, const AdamWSlice* slices,
                     int64_t n_slices, int64_t arena_size, const int64_t* image, float* m, float* v, float* w,
                     Bf16* weights) {
  launch<true>(context, factors, slices, n_slices, arena_size, {image, m, v, w, weights});
}

}  // namespace lockstep::ops
