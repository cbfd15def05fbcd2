// SPDX-License-Identifier: Apache-2.0
// A stream of one GPU and what ops need to launch on it. No arithmetic. No CUDA header is included, so that
// code compiled without a toolkit can name these types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;  // what a cudaStream_t points to

namespace lockstep::cuda {

using Stream = CUstream_st*;

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sms = 0;               // multiprocessors
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // now
  bool hopper() const { return major == 9 && minor == 0; }
};

// Number of GPUs; 0 without a driver.
int device_count();
// Why there is none, as " (...)"; "" where there are some.
std::string no_device_reason();
DeviceInfo device_info(int device);
// CUDA versions, like "13.0": what the driver knows, and what this program was built with.
std::string driver_version();
std::string runtime_version();

// Not copied, not shared between host threads. The number of SMs changes no bit; tests vary it.
class Context {
 public:
  // Makes `device` current and creates a stream. sms 0: all.
  explicit Context(int device, int sms = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Stream stream() const { return stream_; }
  int sms() const { return sms_; }
  const DeviceInfo& info() const { return info_; }
  void synchronize() const;  // throws Error
  int64_t free_bytes() const;

  // Device memory for one op's use within a launch sequence, `bytes` at least, 256-byte aligned, contents
  // undefined; the same memory is handed to the next caller, in stream order. Grows by synchronizing: call
  // reserve_scratch() before capturing a graph.
  void* scratch(int64_t bytes) const;
  void reserve_scratch(int64_t bytes) const { (void)scratch(bytes); }
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // kCounters counters in device memory, zero at first: an op that counts in them leaves them zero.
  static constexpr int64_t kCounters = 65536;
  unsigned* counters() const;

 private:
  DeviceInfo info_;
  int sms_;
  Stream stream_ = nullptr;
  mutable void* scratch_ = nullptr;
  mutable int64_t scratch_bytes_ = 0;
  mutable unsigned* counters_ = nullptr;
};

// Where an op reports data it can not go on with: the least key wins, so the first error in the order of the
// keys is named whatever ran first. at: device memory, all ones when nothing is wrong.
struct Fault {
  unsigned long long* at = nullptr;
  unsigned long long key = 0;
};
inline constexpr unsigned long long kNoFault = ~0ULL;

}  // namespace lockstep::cuda
