// SPDX-License-Identifier: Apache-2.0
// The fp32 products on a GPU against cuBLAS SGEMM (pedantic: no TF32), same operands. Time of a call is the
// median of several, each between two events; weights rotate through more memory than the L2 holds. Prints a
// table in TFLOP/s (microseconds for few rows), ours with the tile shape it chooses and the best of all
// shapes.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"
#include "ops/matmul/matmul_fp32_shapes.h"

using lockstep::cuda::Context;
using lockstep::cuda::DeviceBuffer;
using namespace lockstep::ops;

namespace {

__global__ void fill_kernel(float* p, int64_t n, unsigned seed) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < n; i += gridDim.x * int64_t{256}) {
    unsigned x = static_cast<unsigned>(i) * 2654435761U + seed;
    x ^= x >> 16, x *= 0x7FEB352DU, x ^= x >> 15, x *= 0x846CA68BU, x ^= x >> 16;
    p[i] = static_cast<float>(static_cast<int>(x)) * 0x1p-31F;
  }
}
DeviceBuffer<float> random_floats(const Context& context, int64_t n, unsigned seed) {
  DeviceBuffer<float> out(n);
  fill_kernel<<<1024, 256, 0, context.stream()>>>(out.data(), n, seed);
  return out;
}

void blas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    std::printf("cuBLAS: status %d\n", static_cast<int>(status)), std::exit(1);
}

// Median seconds of a call; call(i) is the i-th.
double seconds(const Context& context, const std::function<void(int)>& call) {
  cudaEvent_t begin, end;
  lockstep::cuda::check(cudaEventCreate(&begin), "creating an event");
  lockstep::cuda::check(cudaEventCreate(&end), "creating an event");
  std::vector<float> times;
  float total = 0;
  for (int i = 0; i < 3; ++i) call(i);
  for (int i = 0; i < 5 || (i < 60 && total < 10.0F); ++i) {
    cudaEventRecord(begin, context.stream());
    call(i);
    cudaEventRecord(end, context.stream());
    lockstep::cuda::check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms);
    total += ms;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e-3;
}

struct Layer {
  const char* name;
  int64_t n, k;
};
constexpr Layer kLayers[] = {
    {"qkv", 1152, 896}, {"o", 896, 896}, {"gate_up", 9728, 896}, {"down", 896, 4864}};
constexpr Layer kVocabulary = {"vocabulary", 151936, 896};
constexpr const char* kShapeNames[] = {"auto",   "128x128", "128x112", "128x96",
                                       "128x64", "64x64",   "32x64",   "skinny"};

std::vector<std::string> table;

void add(const char* op, const Layer& l, int64_t m, double flop, double peer, const std::vector<double>& ours,
         bool small) {
  char line[256];
  int best = 1;
  for (int i = 1; i < static_cast<int>(ours.size()); ++i)
    if (ours[i] > 0 && (ours[best] <= 0 || ours[i] < ours[best])) best = i;
  std::string all;
  for (const double t : ours) {
    std::snprintf(line, sizeof line, " %7.1f", t <= 0 ? 0.0 : small ? t * 1e6 : flop / t * 1e-12);
    all += line;
  }
  std::snprintf(line, sizeof line, "%-4s %-10s %5ld  cuBLAS %7.1f  ours%s  ratio %.2f (best %.2f %s)", op,
                l.name, static_cast<long>(m), small ? peer * 1e6 : flop / peer * 1e-12, all.c_str(),
                peer / ours[0], peer / ours[best], kShapeNames[best]);
  std::printf("%s\n", line);
  table.emplace_back(line);
}

void bench(const Context& context, cublasHandle_t handle, const Layer& l, int64_t m, bool forward_only,
           bool small) {
  const int64_t copies = std::max<int64_t>(1, (200 << 20) / (l.n * l.k * 4));
  const auto w = random_floats(context, copies * l.n * l.k, 1), x = random_floats(context, m * l.k, 2);
  const auto dy = forward_only ? DeviceBuffer<float>() : random_floats(context, m * l.n, 3);
  DeviceBuffer<float> y(m * l.n), dx(m * l.k), dw(forward_only ? 0 : l.n * l.k);
  const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(l.n) * static_cast<double>(l.k);
  const auto w_of = [&](int i) { return w.data() + i % copies * l.n * l.k; };
  const float one = 1, zero = 0;
  const int im = static_cast<int>(m), in = static_cast<int>(l.n), ik = static_cast<int>(l.k);
  const auto shapes = [&](int last, const std::function<void(fp32::Shape, int)>& call) {
    std::vector<double> out;
    for (int s = 0; s <= last; ++s)
      out.push_back(seconds(context, [&](int i) { call(static_cast<fp32::Shape>(s), i); }));
    return out;
  };
  add("fwd", l, m, flop,
      seconds(context,
              [&](int i) {
                blas(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, in, im, ik, &one, w_of(i), ik, x.data(),
                                 ik, &zero, y.data(), in));
              }),
      shapes(m <= fp32::kSkinnyRows ? 7 : 6,
             [&](fp32::Shape s, int i) {
               fp32::forward(context, s, x.data(), l.k, w_of(i), m, l.n, l.k, {}, y.data(), l.n);
             }),
      small);
  if (forward_only) return;
  add("dX", l, m, flop,
      seconds(context,
              [&](int i) {
                blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, ik, im, in, &one, w_of(i), ik, dy.data(),
                                 in, &zero, dx.data(), ik));
              }),
      shapes(6,
             [&](fp32::Shape s, int i) {
               fp32::input_gradient(context, s, dy.data(), l.n, w_of(i), m, l.n, l.k, dx.data(), l.k);
             }),
      false);
  DeviceBuffer<int64_t> image(l.n * l.k);
  image.zero(context);
  std::vector<WeightGradientRows> leaves;  // about 3,200 rows each
  const int64_t n_leaves = (m + 3199) / 3200;
  for (int64_t i = 0; i < n_leaves; ++i)
    leaves.push_back({i * m / n_leaves, (i + 1) * m / n_leaves, 0, 1, 1});
  DeviceBuffer<WeightGradientRows> device_leaves(n_leaves);
  device_leaves.upload(context, leaves.data(), n_leaves);
  DeviceBuffer<unsigned long long> fault(1);
  add("dW", l, m, flop,
      seconds(context,
              [&](int) {
                blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, ik, in, im, &one, x.data(), ik, dy.data(),
                                 in, &zero, dw.data(), ik));
              }),
      shapes(6,
             [&](fp32::Shape s, int) {
               fp32::weight_gradient(context, s, dy.data(), l.n, x.data(), l.k, l.n, l.k,
                                     device_leaves.data(), n_leaves,
                                     {nullptr, nullptr, image.data(), 8192.0F, {fault.data(), 0}, 0});
             }),
      false);
  context.synchronize();
}

}  // namespace

int main(int argc, char**) {
  const bool large = argc > 1;  // any argument: only the large sizes
  const Context context(0);
  cublasHandle_t handle;
  blas(cublasCreate(&handle));
  blas(cublasSetStream(handle, context.stream()));
  blas(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH));
  for (const int64_t m : {256, 8192}) {
    if (large && m < 8192) continue;
    for (const Layer& l : kLayers) bench(context, handle, l, m, false, false);
  }
  bench(context, handle, kVocabulary, 2048, false, false);
  for (const int64_t m : {1, 8, 16, 32, 64, 256}) {
    if (large) break;
    for (const Layer& l : kLayers) bench(context, handle, l, m, true, true);
    bench(context, handle, kVocabulary, m, true, true);
  }
  std::printf(
      "\n%s: TFLOP/s (last part: forward, microseconds); ours: auto 128x128 128x112 128x96 128x64 64x64 "
      "32x64 [skinny]\n",
      context.info().name.c_str());
  for (const std::string& line : table) std::printf("%s\n", line.c_str());
  cublasDestroy(handle);
  return 0;
}
