// SPDX-License-Identifier: Apache-2.0
// A warp a row: thread t holds lanes 4t .. 4t+3 of the row's sum. Rows up to 128 * kChunks elements stay in
// registers between the sum and its use, and so does the gain, which is asked for together with them: one
// after the other each would wait for memory. Longer rows are read twice (kChunks 0).
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "numerics/element.cuh"
#include "numerics/row_fold.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::Pack;

constexpr int kThreads = 256;
constexpr int kFewThreads = 64;  // of a block where there are few rows: more multiprocessors take part
constexpr int64_t kFewRows = 512;

unsigned threads_for(int64_t rows) {
  return rows <= kFewRows ? kFewThreads : kThreads;
}
__device__ __forceinline__ int64_t row_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
}

template <typename T, bool kAligned>
__device__ __forceinline__ Pack<T, 4> quad(const T* row, int i, int h) {
  return numerics::load_pack<4, kAligned>(row + i, h - i);
}

template <bool kAligned, typename Term>
__device__ __forceinline__ void add_quad(float (&lanes)[4], int i, int h, const Term& term) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (kAligned || i + k < h) lanes[k] = term(k, lanes[k]);  // what is not there adds nothing, not +0
  }
}

template <typename T, bool kAligned>
__device__ __forceinline__ void scale_quad(const Pack<T, 4>& x, float r, const Pack<T, 4>& g, T* y, int i,
                                           int h) {
  float out[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) out[k] = (x[k] * r) * g[k];
  numerics::store_pack<kAligned>(y + i, h - i, numerics::pack<T>(out));
}

template <typename T, bool kAligned, int kChunks>
__global__ void __launch_bounds__(kThreads)
    rms_norm_forward(const T* x, const T* __restrict__ gain, float eps, int64_t rows, int h,
                     T* __restrict__ y, float* __restrict__ inverse_rms) {
  const int first = (static_cast<int>(threadIdx.x) & 31) * 4;
  const int64_t row = row_of_warp();
  Pack<T, 4> kept[kChunks > 0 ? kChunks : 1];
  Pack<T, 4> kept_gain[kChunks > 0 ? kChunks : 1];
  if constexpr (kChunks > 0) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (first + c * 128 < h) kept_gain[c] = quad<T, kAligned>(gain, first + c * 128, h);
    }
  }
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  if (row >= rows) return;
  x += row * h;
  y += row * h;
  float lanes[4] = {};
  const auto add = [&](const Pack<T, 4>& v, int i) {
    add_quad<kAligned>(lanes, i, h, [&](int k, float sum) { return fmaf(v[k], v[k], sum); });
  };
  if constexpr (kChunks > 0) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (first + c * 128 < h) kept[c] = quad<T, kAligned>(x, first + c * 128, h);
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (first + c * 128 < h) add(kept[c], first + c * 128);
    }
  } else {
#pragma unroll 4
    for (int i = first; i < h; i += 128) add(quad<T, kAligned>(x, i, h), i);
  }
  const float mean = numerics::warp_fold(lanes) / static_cast<float>(h);
  const float r = 1.0F / sqrtf(mean + eps);
  if constexpr (kChunks > 0) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (first + c * 128 < h) scale_quad<T, kAligned>(kept[c], r, kept_gain[c], y, first + c * 128, h);
    }
  } else {
#pragma unroll 4
    for (int i = first; i < h; i += 128)
      scale_quad<T, kAligned>(quad<T, kAligned>(x, i, h), r, quad<T, kAligned>(gain, i, h), y, i, h);
  }
  if (first == 0 && inverse_rms != nullptr) inverse_rms[row] = r;
}

// Of a row: dy, x and gain at i, as kept between the two passes.
template <typename T>
struct Backward {
  Pack<T, 4> dy, x, gain;
  __device__ __forceinline__ float t(int k) const { return dy[k] * gain[k]; }
};

template <typename T, bool kAligned>
__device__ __forceinline__ Backward<T> load_backward(const T* dy, const T* x, const T* gain, int i, int h) {
  return {quad<T, kAligned>(dy, i, h), quad<T, kAligned>(x, i, h), quad<T, kAligned>(gain, i, h)};
}

template <typename T, bool kAligned>
__device__ __forceinline__ void store_backward(const Backward<T>& v, const Pack<T, 4>& before, float r,
                                               float c, T* dh, int i, int h) {
  float out[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float dx = r * fmaf(-(v.x[k] * r), c, v.t(k));
    out[k] = before[k] + dx;
  }
  numerics::store_pack<kAligned>(dh + i, h - i, numerics::pack<T>(out));
}

template <typename T, bool kAligned, int kChunks>
__global__ void __launch_bounds__(kThreads)
    rms_norm_backward(const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ gain,
                      const float* __restrict__ inverse_rms, int64_t rows, int h, T* __restrict__ dh) {
  const int first = (static_cast<int>(threadIdx.x) & 31) * 4;
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  dy += row * h;
  x += row * h;
  dh += row * h;
  const float r = inverse_rms[row];
  float lanes[4] = {};
  const auto add = [&](const Backward<T>& v, int i) {
    add_quad<kAligned>(lanes, i, h, [&](int k, float sum) { return fmaf(v.t(k), v.x[k] * r, sum); });
  };
  if constexpr (kChunks > 0) {
    Pack<T, 4> kept_dy[kChunks], kept_x[kChunks], kept_gain[kChunks], before[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = first + c * 128;
      if (i >= h) continue;
      kept_dy[c] = quad<T, kAligned>(dy, i, h);
      kept_x[c] = quad<T, kAligned>(x, i, h);
      kept_gain[c] = quad<T, kAligned>(gain, i, h);
      before[c] = quad<T, kAligned>(dh, i, h);
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = first + c * 128;
      if (i < h) add({kept_dy[c], kept_x[c], kept_gain[c]}, i);
    }
    const float c_row = numerics::warp_fold(lanes) / static_cast<float>(h);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = first + c * 128;
      if (i >= h) continue;
      store_backward<T, kAligned>({kept_dy[c], kept_x[c], kept_gain[c]}, before[c], r, c_row, dh, i, h);
    }
  } else {
#pragma unroll 4
    for (int i = first; i < h; i += 128) add(load_backward<T, kAligned>(dy, x, gain, i, h), i);
    const float c_row = numerics::warp_fold(lanes) / static_cast<float>(h);
#pragma unroll 4
    for (int i = first; i < h; i += 128) {
      store_backward<T, kAligned>(load_backward<T, kAligned>(dy, x, gain, i, h), quad<T, kAligned>(dh, i, h),
                                  r, c_row, dh, i, h);
    }
  }
}

template <typename T>
void forward(const cuda::Context& context, const T* x, const T* gain, float eps, int64_t rows, int64_t h,
             T* y, float* inverse_rms) {
  if (rows == 0) return;
  const auto run = [&](auto kernel) {
    const unsigned threads = threads_for(rows);
    cuda::launch_early(context, "RMSNorm forward", kernel, cuda::blocks_for(rows, threads / 32), threads, 0,
                       x, gain, eps, rows, static_cast<int>(h), y, inverse_rms);
  };
  const bool aligned =
      numerics::packs_fit<4>(x, h) && numerics::packs_fit<4>(gain, h) && numerics::packs_fit<4>(y, h);
  if (!aligned) {
    run(rms_norm_forward<T, false, 0>);
  } else if (h <= 1024) {
    run(rms_norm_forward<T, true, 8>);
  } else {
    run(rms_norm_forward<T, true, 0>);
  }
}

template <typename T>
void backward(const cuda::Context& context, const T* dy, const T* x, const T* gain, const float* inverse_rms,
              int64_t rows, int64_t h, T* dh) {
  if (rows == 0) return;
  const auto run = [&](auto kernel) {
    const unsigned threads = threads_for(rows);
    kernel<<<cuda::blocks_for(rows, threads / 32), threads, 0, context.stream()>>>(
        dy, x, gain, inverse_rms, rows, static_cast<int>(h), dh);
  };
  const bool aligned = numerics::packs_fit<4>(dy, h) && numerics::packs_fit<4>(x, h) &&
                       numerics::packs_fit<4>(gain, h) && numerics::packs_fit<4>(dh, h);
  if (!aligned) {
    run(rms_norm_backward<T, false, 0>);
  } else if (h <= 1024) {
    run(rms_norm_backward<T, true, 8>);
  } else {
    run(rms_norm_backward<T, true, 0>);
  }
  cuda::check_launch("RMSNorm backward");
}

}  // namespace

void rms_norm_forward_fp32_cuda(const cuda::Context& context, const float* x, const float* gain, float eps,
                                int64_t rows, int64_t h, float* y, float* inverse_rms) {
  forward(context, x, gain, eps, rows, h, y, inverse_rms);
}
void rms_norm_forward_bf16_cuda(const cuda::Context& context, const Bf16* x, const Bf16* gain, float eps,
                                int64_t rows, int64_t h, Bf16* y, float* inverse_rms) {
  forward(context, x, gain, eps, rows, h, y, inverse_rms);
}
void rms_norm_backward_fp32_cuda(const cuda::Context& context, const float* dy, const float* x,
                                 const float* gain, const float* inverse_rms, int64_t rows, int64_t h,
                                 float* dh) {
  backward(context, dy, x, gain, inverse_rms, rows, h, dh);
}
void rms_norm_backward_bf16_cuda(const cuda::Context& context, const Bf16* dy, const Bf16* x,
                                 const Bf16* gain, const float* inverse_rms, int64_t rows, int64_t h,
                                 Bf16* dh) {
  backward(context, dy, x, gain, inverse_rms, rows, h, dh);
}

}  // namespace lockstep::ops
