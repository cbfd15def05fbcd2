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
  // Adds an array; the handle gives its device address after send().
  template <typename T>
  int64_t add(const T* data, int64_t count) {
    const int64_t at = reserve(count * static_cast<int64_t>(sizeof(T)));
    if (count > 0) std::memcpy(bytes_.data() + at, data, static_cast<size_t>(count) * sizeof(T));
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

  std::vector<char> bytes_;
  void* pinned_ = nullptr;
  void* device_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace lockstep::cuda
