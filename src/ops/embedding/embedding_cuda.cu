// SPDX-License-Identifier: Apache-2.0
// A warp a row.
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "numerics/element.cuh"
#include "numerics/fixed_point.h"
#include "ops/embedding/embedding_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::Pack;

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / 32;

template <typename T>
inline constexpr int kCount = static_cast<int>(16 / sizeof(T));  // elements of a vector

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    gather_rows(const T* table, const int32_t* ids, int64_t rows, int h, T* __restrict__ out) {
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + (threadIdx.x >> 5);
  if (row >= rows) return;
  const int64_t id = ids[row];
  out += row * h;
#pragma unroll 4
  for (int i = (static_cast<int>(threadIdx.x) & 31) * kCount<T>; i < h; i += 32 * kCount<T>) {
    Pack<T, kCount<T>> x = {};
    if (id >= 0) x = numerics::load_pack<kCount<T>, kAligned>(table + id * h + i, h - i);
    numerics::store_pack<kAligned>(out + i, h - i, x);
  }
}

// Threads of a warp add to neighbouring integers: whole lines of the cache at once.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_rows(const T* __restrict__ dh, const int32_t* __restrict__ ids, int64_t rows, int h, float bound,
             unsigned long long* __restrict__ image, cuda::Fault fault) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + (threadIdx.x >> 5);
  if (row >= rows) return;
  const int64_t id = ids[row];
  if (id < 0) return;
  image += id * h;
  dh += row * h;
  bool in_range = true;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) & 31; i < h; i += 32) {
    const float x = numerics::to_float(dh[i]);
    if (!numerics::in_gradient_range(x, bound)) {
      in_range = false;
      continue;
    }
    const int64_t fixed = numerics::gradient_to_fixed(x);
    if (fixed != 0) atomicAdd(image + i, static_cast<unsigned long long>(fixed));
  }
  if (!in_range) cuda::report(fault);
}

template <typename T>
void forward(const cuda::Context& context, const T* table, const int32_t* ids, int64_t rows, int64_t h,
             T* out) {
  if (rows == 0) return;
  const bool aligned = numerics::packs_fit<kCount<T>>(table, h) && numerics::packs_fit<kCount<T>>(out, h);
  const auto kernel = aligned ? gather_rows<T, true> : gather_rows<T, false>;
  cuda::launch_early(context, "embedding forward", kernel, cuda::blocks_for(rows, kRowsPerBlock), kThreads, 0,
                     table, ids, rows, static_cast<int>(h), out);
}

template <typename T>
void gradient(const cuda::Context& context, const T* dh, const int32_t* ids, int64_t rows, int64_t h,
              float bound, int64_t* image, const cuda::Fault& fault) {
  if (rows == 0) return;
  add_rows<T><<<cuda::blocks_for(rows, kRowsPerBlock), kThreads, 0, context.stream()>>>(
      dh, ids, rows, static_cast<int>(h), bound, reinterpret_cast<unsigned long long*>(image), fault);
  cuda::check_launch("embedding gradient");
}

}  // namespace

void embedding_forward_fp32_cuda(const cuda::Context& context, const float* table, const int32_t* ids,
                                 int64_t rows, int64_t h, float* out) {
  forward(context, table, ids, rows, h, out);
}
void embedding_forward_bf16_cuda(const cuda::Context& context, const Bf16* table, const int32_t* ids,
                                 int64_t rows, int64_t h, Bf16* out) {
  forward(context, table, ids, rows, h, out);
}
void embedding_gradient_fp32_cuda(const cuda::Context& context, const float* dh, const int32_t* ids,
                                  int64_t rows, int64_t h, float bound, int64_t* image,
                                  const cuda::Fault& fault) {
  gradient(context, dh, ids, rows, h, bound, image, fault);
}
void embedding_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dh, const int32_t* ids,
                                  int64_t rows, int64_t h, float bound, int64_t* image,
                                  const cuda::Fault& fault) {
  gradient(context, dh, ids, rows, h, bound, image, fault);
}

}  // namespace lockstep::ops
