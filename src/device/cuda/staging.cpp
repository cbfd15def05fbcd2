// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kLeast = 0x10000;

int64_t round_up(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

Staging::~Staging() {
  release(device_, device_bytes_);
  if (pinned_ != nullptr) (void)cudaFreeHost(pinned_);
}

void Staging::clear(const Context& context) {
  if (sending_) context.synchronize();
  sending_ = false;
  size_ = 0;
}

int64_t Staging::reserve(int64_t bytes) {
  const int64_t at = round_up(size_, kAlign);
  size_ = at + bytes;
  if (size_ <= pinned_bytes_) return at;
  const int64_t wanted = round_up(std::max(size_, 2 * pinned_bytes_), kLeast);
  void* grown = nullptr;
  check(cudaMallocHost(&grown, static_cast<size_t>(wanted)), "allocating pinned memory");
  if (pinned_ != nullptr) {
    std::memcpy(grown, pinned_, static_cast<size_t>(at));
    (void)cudaFreeHost(pinned_);
  }
  pinned_ = static_cast<char*>(grown);
  pinned_bytes_ = wanted;
  return at;
}

void Staging::send(const Context& context) {
  if (size_ == 0) return;
  if (size_ > device_bytes_) {
    release(device_, device_bytes_);
    device_ = nullptr;
    device_bytes_ = 0;
    device_ = allocate(pinned_bytes_, "arguments of a step");
    device_bytes_ = pinned_bytes_;
  }
  copy_to_device(context, device_, pinned_, size_);
  sending_ = true;
}

}  // namespace lockstep::cuda
