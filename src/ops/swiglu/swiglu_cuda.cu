// SPDX-License-Identifier: Apache-2.0
// A warp takes kSteps vectors a thread of one row.
#include "device/cuda/launch.h"
#include "numerics/element.cuh"
#include "numerics/math.h"
#include "ops/swiglu/swiglu_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::Pack;

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / 32;
constexpr int kSteps = 2;

template <typename T>
inline constexpr int kCount = static_cast<int>(16 / sizeof(T));  // elements of a vector
template <typename T>
inline constexpr int kColumns = kSteps * 32 * kCount<T>;  // of a warp

// numerics::exp(x), its clamps and its second factor left out where they do nothing: for |x| <= 80 the result
// is a normal number, so p * 2^k is exact and the exponent can be added to p's.
__device__ __forceinline__ float exp_of(float x) {
  if (!(fabsf(x) <= 80.0F)) return numerics::exp(x);
  const float shifted = fmaf(x, 0x1.715476p+0F, numerics::kRoundEvenMagic);
  const float n = shifted - numerics::kRoundEvenMagic;
  float r = fmaf(n, -0x1.62e400p-1F, x);
  r = fmaf(n, -0x1.7f7d1cp-20F, r);
  const float p = numerics::horner<numerics::kExpCoefficients>(r);
  // The magic number's bits end in zeros above the 9 that n can reach, so the shift leaves n * 2^23.
  return numerics::float_from_bits(numerics::float_bits(p) + (numerics::float_bits(shifted) << 23));
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward(const T* __restrict__ gate_up, int64_t rows, int f, T* __restrict__ y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + (threadIdx.x >> 5);
  if (row >= rows) return;
  const int first =
      static_cast<int>(blockIdx.y) * kColumns<T> + (static_cast<int>(threadIdx.x) & 31) * kCount<T>;
  gate_up += row * 2 * f;
  y += row * f;
  Pack<T, kCount<T>> gate[kSteps], up[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = first + step * 32 * kCount<T>;
    if (i >= f) continue;
    gate[step] = numerics::load_pack<kCount<T>, kAligned>(gate_up + i, f - i);
    up[step] = numerics::load_pack<kCount<T>, kAligned>(gate_up + f + i, f - i);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = first + step * 32 * kCount<T>;
    if (i >= f) continue;
    float out[kCount<T>];
#pragma unroll
    for (int k = 0; k < kCount<T>; ++k) {
      const float g = gate[step][k];
      out[k] = (g / (1.0F + exp_of(-g))) * up[step][k];
    }
    numerics::store_pack<kAligned>(y + i, f - i, numerics::pack<T>(out));
  }
}

// d_gate_up may be gate_up: a thread writes what only it has read. kAgain: y too.
template <typename T, bool kAligned, bool kAgain>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward(const T* __restrict__ dy, const T* gate_up, int64_t rows, int f, T* d_gate_up,
                    T* __restrict__ y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + (threadIdx.x >> 5);
  if (row >= rows) return;
  const int first =
      static_cast<int>(blockIdx.y) * kColumns<T> + (static_cast<int>(threadIdx.x) & 31) * kCount<T>;
  gate_up += row * 2 * f;
  d_gate_up += row * 2 * f;
  dy += row * f;
  if (kAgain) y += row * f;
  Pack<T, kCount<T>> gate[kSteps], up[kSteps], d[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = first + step * 32 * kCount<T>;
    if (i >= f) continue;
    gate[step] = numerics::load_pack<kCount<T>, kAligned>(gate_up + i, f - i);
    up[step] = numerics::load_pack<kCount<T>, kAligned>(gate_up + f + i, f - i);
    d[step] = numerics::load_pack<kCount<T>, kAligned>(dy + i, f - i);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = first + step * 32 * kCount<T>;
    if (i >= f) continue;
    float d_gate[kCount<T>];
    float d_up[kCount<T>];
    float out[kCount<T>];
#pragma unroll
    for (int k = 0; k < kCount<T>; ++k) {
      const float g = gate[step][k];
      const float denominator = 1.0F + exp_of(-g);
      const float t = 1.0F / denominator;
      const float silu = g / denominator;
      if (kAgain) out[k] = silu * up[step][k];
      d_up[k] = d[step][k] * silu;
      d_gate[k] = (d[step][k] * up[step][k]) * (t * fmaf(g, 1.0F - t, 1.0F));
    }
    numerics::store_pack<kAligned>(d_gate_up + i, f - i, numerics::pack<T>(d_gate));
    numerics::store_pack<kAligned>(d_gate_up + f + i, f - i, numerics::pack<T>(d_up));
    if constexpr (kAgain) numerics::store_pack<kAligned>(y + i, f - i, numerics::pack<T>(out));
  }
}

template <typename T>
dim3 grid_of(int64_t rows, int64_t f) {
  return {cuda::blocks_for(rows, kRowsPerBlock), cuda::blocks_for(f, kColumns<T>)};
}

template <typename T>
void forward(const cuda::Context& context, const T* gate_up, int64_t rows, int64_t f, T* y) {
  if (rows == 0) return;
  const bool aligned = numerics::packs_fit<kCount<T>>(gate_up, f) && numerics::packs_fit<kCount<T>>(y, f);
  const auto kernel = aligned ? swiglu_forward<T, true> : swiglu_forward<T, false>;
  kernel<<<grid_of<T>(rows, f), kThreads, 0, context.stream()>>>(gate_up, rows, static_cast<int>(f), y);
  cuda::check_launch("SwiGLU forward");
}

template <typename T>
void backward(const cuda::Context& context, const T* dy, const T* gate_up, int64_t rows, int64_t f,
              T* d_gate_up, T* y) {
  if (rows == 0) return;
  const bool aligned = numerics::packs_fit<kCount<T>>(gate_up, f) && numerics::packs_fit<kCount<T>>(dy, f) &&
                       numerics::packs_fit<kCount<T>>(d_gate_up, f) && numerics::packs_fit<kCount<T>>(y, f);
  const auto kernel = y != nullptr
                          ? (aligned ? swiglu_backward<T, true, true> : swiglu_backward<T, false, true>)
                          : (aligned ? swiglu_backward<T, true, false> : swiglu_backward<T, false, false>);
  kernel<<<grid_of<T>(rows, f), kThreads, 0, context.stream()>>>(dy, gate_up, rows, static_cast<int>(f),
                                                                 d_gate_up, y);
  cuda::check_launch("SwiGLU backward");
}

}  // namespace

void swiglu_forward_fp32_cuda(const cuda::Context& context, const float* gate_up, int64_t rows, int64_t f,
                              float* y) {
  forward(context, gate_up, rows, f, y);
}
void swiglu_forward_bf16_cuda(const cuda::Context& context, const Bf16* gate_up, int64_t rows, int64_t f,
                              Bf16* y) {
  forward(context, gate_up, rows, f, y);
}
void swiglu_backward_fp32_cuda(const cuda::Context& context, const float* dy, const float* gate_up,
                               int64_t rows, int64_t f, float* d_gate_up, float* y) {
  backward(context, dy, gate_up, rows, f, d_gate_up, y);
}
void swiglu_backward_bf16_cuda(const cuda::Context& context, const Bf16* dy, const Bf16* gate_up,
                               int64_t rows, int64_t f, Bf16* d_gate_up, Bf16* y) {
  backward(context, dy, gate_up, rows, f, d_gate_up, y);
}

}  // namespace lockstep::ops
