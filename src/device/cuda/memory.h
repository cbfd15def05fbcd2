// SPDX-License-Identifier: Apache-2.0
// Device memory that owns itself, and copies on a context's stream.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "device/cuda/context.h"

namespace lockstep::cuda {

// Throws Error, naming `what` and the bytes; 0 bytes: null. The memory holds anything; with LOCKSTEP_POISON=1
// in the environment, bytes of 0xFF (NaN, -1), so that a result which depends on what was there shows.
void* allocate(int64_t bytes, const char* what);
void release(void* p, int64_t bytes) noexcept;  // bytes: as allocated
// Bytes that allocate() gave and release() has not taken back, and the most they were since reset_peak().
struct MemoryCount {
  int64_t now = 0;
  int64_t peak = 0;
};
MemoryCount memory_count();
void reset_peak();
void copy_to_device(const Context& context, void* to, const void* from, int64_t bytes);
// Returns after the bytes have arrived.
void copy_to_host(const Context& context, void* to, const void* from, int64_t bytes);
void copy_on_device(const Context& context, void* to, const void* from, int64_t bytes);
void fill(const Context& context, void* to, int byte, int64_t bytes);

// `count` elements of undefined value.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t count, const char* what = "a buffer")
      : data_(static_cast<T*>(allocate(count * static_cast<int64_t>(sizeof(T)), what))), size_(count) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBuffer() { release(data_, size_bytes()); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t size_bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  // Grows to at least `count` elements; contents are lost when it grows. What it had is given back first, so
  // that it never takes more than the larger of the two; it is empty when the allocation fails.
  void ensure(int64_t count, const char* what = "a buffer") {
    if (count <= size_) return;
    clear();
    *this = DeviceBuffer(count, what);
  }
  void clear() {
    release(data_, size_bytes());
    data_ = nullptr;
    size_ = 0;
  }
  void upload(const Context& context, const T* from, int64_t count, int64_t at = 0) {
    copy_to_device(context, data_ + at, from, count * static_cast<int64_t>(sizeof(T)));
  }
  void download(const Context& context, T* to, int64_t count, int64_t at = 0) const {
    copy_to_host(context, to, data_ + at, count * static_cast<int64_t>(sizeof(T)));
  }
  void zero(const Context& context) { fill(context, data_, 0, size_bytes()); }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace lockstep::cuda
