// SPDX-License-Identifier: Apache-2.0
// A 64-byte aligned array on the heap, not initialised (a test build may poison it). Movable, owns its
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace lockstep {

inline constexpr size_t kBufferAlignment = 64;

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  // `count` elements of undefined value. Throws std::bad_alloc (the program reports it and exits with 4).
  explicit Buffer(int64_t count) : size_(count) {
    if (count > 0) {
      data_.reset(static_cast<T*>(
          ::operator new (static_cast<size_t>(count) * sizeof(T), std::align_val_t{kBufferAlignment})));
    }
  }
  static Buffer zeros(int64_t count) {
    Buffer buffer(count);
    buffer.fill_zero();
    return buffer;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t size_bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  bool empty() const { return size_ == 0; }
  T& operator[](int64_t i) { return data_.get()[i]; }
  const T& operator[](int64_t i) const { return data_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  void fill_zero() {
    if (size_ > 0) std::memset(data_.get(), 0, static_cast<size_t>(size_bytes()));
  }
  // Grows to at least `count` elements; contents are lost when it grows.
  void ensure(int64_t count) {
    if (count > size_) *this = Buffer(count);
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{kBufferAlignment}); }
  };
  std::unique_ptr<T[], Free> data_;
  int64_t size_ = 0;
};

}  // namespace lockstep
