// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/context.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"

namespace lockstep::cuda {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

constexpr int64_t kCounterBytes = Context::kCounters * static_cast<int64_t>(sizeof(unsigned));

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

std::string no_device_reason() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess) return "";
  (void)cudaGetLastError();
  return fmt::format(" ({})", cudaGetErrorString(code));
}

DeviceInfo device_info(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "reading the GPU's properties");
  DeviceInfo info;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.sms = properties.multiProcessorCount;
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaSetDevice(device), "choosing the GPU");
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "reading the GPU's free memory");
  info.free_bytes = static_cast<int64_t>(free_bytes);
  info.total_bytes = static_cast<int64_t>(total_bytes);
  return info;
}

std::string driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "reading the driver's version");
  return version_text(version);
}

std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "reading the runtime's version");
  return version_text(version);
}

Context::Context(int device, int sms)
    : info_(device_info(device)), sms_(sms > 0 ? std::min(sms, info_.sms) : info_.sms) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}

Context::~Context() {
  release(scratch_, scratch_bytes_);
  release(counters_, kCounterBytes);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

void Context::synchronize() const {
  check(cudaStreamSynchronize(stream_), "waiting for the GPU");
}

int64_t Context::free_bytes() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the GPU's free memory");
  return static_cast<int64_t>(free);
}

void* Context::scratch(int64_t bytes) const {
  if (bytes > scratch_bytes_) {
    synchronize();
    release(scratch_, scratch_bytes_);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    scratch_ = allocate(bytes, "scratch memory of an operation");
    scratch_bytes_ = bytes;
  }
  return scratch_;
}

unsigned* Context::counters() const {
  if (counters_ == nullptr) {
    counters_ = static_cast<unsigned*>(allocate(kCounterBytes, "counters of operations"));
    fill(*this, counters_, 0, kCounterBytes);
  }
  return counters_;
}

}  // namespace lockstep::cuda
