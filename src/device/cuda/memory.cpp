// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "device/cuda/error.h"

namespace lockstep::cuda {
namespace {

std::atomic<int64_t> count_now{0};
std::atomic<int64_t> count_peak{0};

void count(int64_t bytes) {
  const int64_t now = count_now += bytes;
  int64_t peak = count_peak;
  while (now > peak && !count_peak.compare_exchange_weak(peak, now)) {
  }
}

bool poisons() {
  static const char* const value = std::getenv("LOCKSTEP_POISON");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

MemoryCount memory_count() {
  return {count_now, count_peak};
}

void reset_peak() {
  count_peak = count_now.load();
}

void* allocate(int64_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  void* p = nullptr;
  const cudaError_t code = cudaMalloc(&p, static_cast<size_t>(bytes));
  if (code == cudaSuccess) {
    count(bytes);
    if (poisons()) {
      check(cudaMemset(p, 0xFF, static_cast<size_t>(bytes)), "filling memory of the GPU");
      check(cudaDeviceSynchronize(), "filling memory of the GPU");
    }
    return p;
  }
  (void)cudaGetLastError();
  size_t free_bytes = 0, total_bytes = 0;
  (void)cudaMemGetInfo(&free_bytes, &total_bytes);
  throw Error(
      code, fmt::format("allocating {:.2f} GiB for {} ({:.2f} of {:.2f} GiB are free)",
                        static_cast<double>(bytes) * 0x1p-30, what, static_cast<double>(free_bytes) * 0x1p-30,
                        static_cast<double>(total_bytes) * 0x1p-30));
}

void release(void* p, int64_t bytes) noexcept {
  if (p == nullptr) return;
  (void)cudaFree(p);
  count_now -= bytes;
}

void copy_to_device(const Context& context, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, context.stream()),
        "copying to the GPU");
}

void copy_to_host(const Context& context, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, context.stream()),
        "copying from the GPU");
  context.synchronize();
}

void copy_on_device(const Context& context, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, context.stream()),
        "copying on the GPU");
}

void fill(const Context& context, void* to, int byte, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), context.stream()), "filling memory of the GPU");
}

}  // namespace lockstep::cuda
