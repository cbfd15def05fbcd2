// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/cuda/error.h"
#include "device/cuda/memory.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kAlign = 256;

}  // namespace

Staging::~Staging() {
  release(device_);
  if (pinned_ != nullptr) (void)cudaFreeHost(pinned_);
}

void Staging::clear(const Context& context) {
  if (pinned_ != nullptr) context.synchronize();
  bytes_.clear();
}

int64_t Staging::reserve(int64_t bytes) {
  const int64_t at = (static_cast<int64_t>(bytes_.size()) + kAlign - 1) / kAlign * kAlign;
  bytes_.resize(static_cast<size_t>(at + bytes));
  return at;
}

void Staging::send(const Context& context) {
  const auto size = static_cast<int64_t>(bytes_.size());
  if (size > capacity_) {
    release(device_);
    device_ = nullptr;
    if (pinned_ != nullptr) check(cudaFreeHost(pinned_), "freeing pinned memory");
    pinned_ = nullptr;
    const int64_t wanted = std::max<int64_t>(2 * capacity_, (size + 0xFFFF) / 0x10000 * 0x10000);
    device_ = allocate(wanted, "arguments of a step");
    check(cudaMallocHost(&pinned_, static_cast<size_t>(wanted)), "allocating pinned memory");
    capacity_ = wanted;
  }
  if (size == 0) return;
  std::memcpy(pinned_, bytes_.data(), bytes_.size());
  copy_to_device(context, device_, pinned_, size);
}

}  // namespace lockstep::cuda
