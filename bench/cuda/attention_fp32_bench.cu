// SPDX-License-Identifier: Apache-2.0
// Attention of profile fp32 on a GPU: training shapes forward and backward, decode. Median of several calls.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <vector>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"
#include "ops/attention/attention_cuda.h"

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
double seconds(const Context& context, const std::function<void()>& call) {
  cudaEvent_t begin, end;
  lockstep::cuda::check(cudaEventCreate(&begin), "creating an event");
  lockstep::cuda::check(cudaEventCreate(&end), "creating an event");
  std::vector<float> times;
  call();
  for (int i = 0; i < 7; ++i) {
    cudaEventRecord(begin, context.stream());
    call();
    cudaEventRecord(end, context.stream());
    lockstep::cuda::check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[3] * 1e-3;
}
template <typename T>
DeviceBuffer<T> upload(const Context& context, const std::vector<T>& from) {
  DeviceBuffer<T> to(static_cast<int64_t>(from.size()));
  to.upload(context, from.data(), static_cast<int64_t>(from.size()));
  context.synchronize();
  return to;
}

void train(const Context& context, const AttentionShape& s, int64_t samples, int64_t length) {
  const int64_t rows = samples * length, ld = (s.heads + 2 * s.kv_heads) * s.head_size,
                width = s.heads * s.head_size;
  const auto qkv = random_floats(context, rows * ld, 1), d_out = random_floats(context, rows * width, 2);
  DeviceBuffer<float> out(rows * width), max(rows * s.heads), sum(rows * s.heads), d_qkv(rows * ld);
  std::vector<int32_t> first(static_cast<size_t>(samples)), count(first.size(), static_cast<int32_t>(length));
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int32_t>(static_cast<int64_t>(i) * length);
  const auto d_first = upload(context, first), d_count = upload(context, count);
  DeviceBuffer<unsigned long long> fault(1);
  const AttentionRows which = {d_first.data(), d_count.data(), nullptr, samples, length};
  const double flop = 2.0 * static_cast<double>(samples * s.heads * s.head_size) *
                      static_cast<double>(length) * static_cast<double>(length);
  const double forward = seconds(context, [&] {
    attention_forward_samples_fp32_cuda(context, s, qkv.data(), ld, which, out.data(), width, max.data(),
                                        sum.data(), {fault.data(), 0});
  });
  const double backward = seconds(context, [&] {
    attention_backward_fp32_cuda(context, s, qkv.data(), out.data(), d_out.data(), max.data(), sum.data(),
                                 which, rows, d_qkv.data());
  });
  std::printf(
      "%3ld samples of %5ld, heads %ld/%ld of %3ld: forward %8.1f us %5.1f TFLOP/s, backward %8.1f us %5.1f "
      "TFLOP/s\n",
      static_cast<long>(samples), static_cast<long>(length), static_cast<long>(s.heads),
      static_cast<long>(s.kv_heads), static_cast<long>(s.head_size), forward * 1e6, flop / forward * 1e-12,
      backward * 1e6, 2.5 * flop / backward * 1e-12);
}

void decode(const Context& context, const AttentionShape& s, int64_t sequences, int64_t keys) {
  const int64_t pages = (keys + 63) / 64, block = 2 * s.kv_heads * 64 * s.head_size,
                width = s.heads * s.head_size;
  const auto memory = random_floats(context, sequences * pages * block, 1);
  const auto q = random_floats(context, sequences * width, 2);
  DeviceBuffer<float> out(sequences * width);
  std::vector<int32_t> table(static_cast<size_t>(sequences * pages)), first(static_cast<size_t>(sequences)),
      position(first.size(), static_cast<int32_t>(keys - 1));
  std::iota(table.begin(), table.end(), 0);
  std::iota(first.begin(), first.end(), 0);
  const auto d_table = upload(context, table), d_first = upload(context, first),
             d_position = upload(context, position);
  DeviceBuffer<unsigned long long> fault(1);
  const double time = seconds(context, [&] {
    attention_forward_paged_fp32_cuda(context, s, q.data(), width,
                                      {d_first.data(), nullptr, d_position.data(), sequences, 1},
                                      {const_cast<float*>(memory.data()), block, d_table.data(), pages},
                                      out.data(), width, nullptr, nullptr, {fault.data(), 0});
  });
  std::printf("decode %3ld sequences at %5ld keys: %8.1f us, %6.0f GB/s\n", static_cast<long>(sequences),
              static_cast<long>(keys), time * 1e6,
              static_cast<double>(sequences * keys * 2 * s.kv_heads * s.head_size * 4) / time * 1e-9);
}

}  // namespace

int main() {
  const Context context(0);
  const AttentionShape qwen{14, 2, 64};
  train(context, qwen, 64, 400);
  train(context, qwen, 8, 1124);
  train(context, qwen, 1, 8192);
  train(context, {16, 8, 128}, 16, 400);
  train(context, {8, 4, 256}, 16, 400);
  for (const int64_t n : {1, 32, 256})
    for (const int64_t keys : {400, 4096}) decode(context, qwen, n, keys);
  return 0;
}
