// SPDX-License-Identifier: Apache-2.0
// For tests of CUDA ops: arrays on the device, contexts that may not change a bit, inputs in both profiles.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/cuda/context.h"
#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "numerics/bfloat16.h"
#include "same_bits.h"
#include "sanitized.h"

namespace lockstep::testing {

// All multiprocessors, and as if there were few.
template <typename F>
void for_each_cuda_context(const F& f) {
  for (const int sms : cases<int>({0, 7, 1}, 2)) {
    const cuda::Context context(0, sms);
    f(context);
    context.synchronize();
  }
}

// A copy of a vector in device memory; `skip` elements are left free before it, to misalign it.
template <typename T>
class OnDevice {
 public:
  OnDevice(const cuda::Context& context, const std::vector<T>& from, int64_t skip = 0)
      : context_(context), skip_(skip), size_(static_cast<int64_t>(from.size())), buffer_(size_ + skip + 1) {
    buffer_.upload(context, from.data(), size_, skip);
    context.synchronize();
  }
  // Every byte 0xFF.
  OnDevice(const cuda::Context& context, int64_t size, int64_t skip = 0)
      : context_(context), skip_(skip), size_(size), buffer_(size + skip + 1) {
    cuda::fill(context, buffer_.data(), 0xFF, buffer_.size_bytes());
  }
  T* data() { return buffer_.data() + skip_; }
  std::vector<T> host() const {
    std::vector<T> out(static_cast<size_t>(size_));
    buffer_.download(context_, out.data(), size_, skip_);
    return out;
  }

 private:
  const cuda::Context& context_;
  int64_t skip_;
  int64_t size_;
  cuda::DeviceBuffer<T> buffer_;
};

// A fault that starts as none.
class FaultWord {
 public:
  explicit FaultWord(const cuda::Context& context) : word_(context, 1) {}
  cuda::Fault at(unsigned long long key = 0) { return {word_.data(), key}; }
  unsigned long long value() const { return word_.host()[0]; }

 private:
  OnDevice<unsigned long long> word_;
};

template <typename T>
std::vector<T> profile_values(const std::vector<float>& x);
template <>
inline std::vector<float> profile_values<float>(const std::vector<float>& x) {
  return x;
}
template <>
inline std::vector<numerics::Bf16> profile_values<numerics::Bf16>(const std::vector<float>& x) {
  std::vector<numerics::Bf16> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = numerics::float_to_bfloat16(x[i]);
  return out;
}

// Values of usual size, zeros of both signs, tiny ones (subnormal, too) and large ones.
inline std::vector<float> mixed_values(int64_t n, uint64_t seed, float scale = 1.0F) {
  TestRandom random(seed);
  std::vector<float> x = random.values(n, scale);
  for (float& v : x) {
    const float factors[] = {0.0F, -0.0F, 1e-30F, 1e-39F, 1e6F, 0x1p-20F};
    const int64_t kind = random.below(24);
    if (kind < 6) v *= factors[kind];
  }
  return x;
}

}  // namespace lockstep::testing
