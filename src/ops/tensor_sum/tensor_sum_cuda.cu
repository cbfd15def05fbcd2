// SPDX-License-Identifier: Apache-2.0
// A thread block a block of the sum, a thread one of its 128 lanes; then a warp a tensor; then one thread.
#include "device/cuda/launch.h"
#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "ops/tensor_sum/tensor_sum_cuda.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = numerics::kSumLanes;
constexpr int kUnroll = 16;
constexpr int64_t kBlock = numerics::kTensorSumBlock;

__device__ __forceinline__ double add_square(double sum, int64_t image) {
  const double g = numerics::gradient_from_fixed(image);
  return fma(g, g, sum);
}

__global__ void __launch_bounds__(kThreads, 8)
    block_sums(const int64_t* __restrict__ image, const TensorSumSlice* __restrict__ slices, int n,
               double* __restrict__ sums) {
  // The last tensor that starts at or before this block; empty ones share their successor's start.
  const int64_t block = blockIdx.x;
  int low = 0;
  int high = n;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (slices[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t first = (block - slices[low].first_block) * kBlock;
  const int64_t left = slices[low].size - first;
  const int size = static_cast<int>(left < kBlock ? left : kBlock);
  image += slices[low].offset + first;
  double sum = 0.0;
  int i = static_cast<int>(threadIdx.x);
  for (; i + (kUnroll - 1) * kThreads < size; i += kUnroll * kThreads) {
    int64_t x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      x[u] = __ldcs(reinterpret_cast<const long long*>(image) + i + u * kThreads);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum = add_square(sum, x[u]);
  }
  for (; i < size; i += kThreads) sum = add_square(sum, image[i]);

    // The fold of reduce.h: widths 1 .. 16 within a warp, 32 and 64 between the four.
#pragma unroll
  for (int width = 1; width < 32; width *= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFU, sum, width);
  __shared__ double warps[4];
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x == 0) sums[block] = (warps[0] + warps[1]) + (warps[2] + warps[3]);
}

// sum of x[0 .. n) from +0, ascending; the same in every thread of the warp.
__device__ __forceinline__ double ascending_sum(const double* x, int64_t n) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  double sum = 0.0;
  for (int64_t first = 0; first < n; first += 32) {
    const double mine = first + lane < n ? x[first + lane] : 0.0;
    const int count = static_cast<int>(n - first < 32 ? n - first : 32);
    for (int k = 0; k < count; ++k) sum = sum + __shfl_sync(0xFFFFFFFFU, mine, k);
  }
  return sum;
}

__global__ void tensor_sums(const double* __restrict__ sums, const TensorSumSlice* __restrict__ slices, int n,
                            int64_t blocks, double* __restrict__ tensors, double* __restrict__ per_tensor) {
  const int tensor = static_cast<int>(blockIdx.x);
  const int64_t first = slices[tensor].first_block;
  const int64_t end = tensor + 1 < n ? slices[tensor + 1].first_block : blocks;
  const double sum = ascending_sum(sums + first, end - first);
  if (threadIdx.x != 0) return;
  tensors[tensor] = sum;
  if (per_tensor != nullptr) per_tensor[tensor] = sum;
}

__global__ void all_sum(const double* __restrict__ tensors, int n, double* __restrict__ total) {
  const double sum = ascending_sum(tensors, n);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void gradient_sum_of_squares_cuda(const cuda::Context& context, const int64_t* image,
                                  const TensorSumSlice* slices, int64_t n, int64_t blocks, double* total,
                                  double* per_tensor) {
  auto* sums = static_cast<double*>(context.scratch((blocks + n) * static_cast<int64_t>(sizeof(double))));
  double* tensors = sums + blocks;
  if (blocks > 0) {
    block_sums<<<static_cast<unsigned>(blocks), kThreads, 0, context.stream()>>>(image, slices,
                                                                                 static_cast<int>(n), sums);
    cuda::check_launch("sums of squares of a gradient's blocks");
  }
  if (n > 0) {
    tensor_sums<<<static_cast<unsigned>(n), 32, 0, context.stream()>>>(sums, slices, static_cast<int>(n),
                                                                       blocks, tensors, per_tensor);
    cuda::check_launch("sums of squares of tensors");
  }
  all_sum<<<1, 32, 0, context.stream()>>>(tensors, static_cast<int>(n), total);
  cuda::check_launch("sum of squares of a gradient");
}

}  // namespace lockstep::ops
