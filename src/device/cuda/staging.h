// SPDX-License-Identifier: Apache-2.0
// Small arrays on their way to the GPU: packed in pinned host memory, sent in one copy.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "device/cuda/context.h"

namespace lockstep::cuda {

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Starts a new set; waits until the last one has been sent.
  void clear(const Context& context);
  // Adds an array, copied at once; the handle gives its device address after send().
  template <typename T>
  int64_t add(const T* data, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t at = reserve(bytes);
    if (count > 0) std::memcpy(pinned_ + at, data, static_cast<size_t>(bytes));
    return at;
  }
  template <typename T>
  int64_t add(const std::vector<T>& data) {
    return add(data.data(), static_cast<int64_t>(data.size()));
  }
  void send(const Context& context);
  template <typename T>
  const T* at(int64_t handle) const {
    return reinterpret_cast<const T*>(static_cast<const char*>(device_) + handle);
  }

 private:
  int64_t reserve(int64_t bytes);

  char* pinned_ = nullptr;
  void* device_ = nullptr;
  int64_t size_ = 0;          // of the set
  int64_t pinned_bytes_ = 0;  // allocated
  int64_t device_bytes_ = 0;
  bool sending_ = false;  // a copy may be under way
};

}  // namespace lockstep::cuda
