// SPDX-License-Identifier: Apache-2.0
// Digests of one arena on the GPU, parameter by parameter. The table of slices is built once.
#pragma once

#include <string>
#include <vector>

#include "device/cuda/memory.h"
#include "model/digests.h"
#include "model/parameters.h"
#include "ops/digest/digest_cuda.h"

namespace lockstep::model {

class DeviceDigests {
 public:
  // arena: device memory that stays where it is.
  template <class T>
  DeviceDigests(const cuda::Context& device, const ParameterTable& table, const T* arena)
      : device_(device), table_(table) {
    ops::DigestTable slices;
    for (const Parameter& p : table.by_name())
      ops::add_tensor(&slices, arena + p.offset, p.size * static_cast<int64_t>(sizeof(T)));
    groups_ = slices.groups;
    const auto count = static_cast<int64_t>(slices.slices.size());
    slices_ = cuda::DeviceBuffer<ops::DigestSlice>(count, "the tables of digests");
    digests_ = cuda::DeviceBuffer<numerics::Digest128>(count, "the tables of digests");
    slices_.upload(device, slices.slices.data(), count);
    device.synchronize();
  }
  // Each name with the prefix.
  void append(const std::string& prefix, NamedDigests* out) {
    const int64_t count = slices_.size();
    ops::digest_tensors_cuda(device_, slices_.data(), count, groups_, digests_.data());
    std::vector<numerics::Digest128> host(static_cast<size_t>(count));
    digests_.download(device_, host.data(), count);
    for (size_t i = 0; i < host.size(); ++i) out->emplace_back(prefix + table_.by_name()[i].name, host[i]);
  }

 private:
  const cuda::Context& device_;
  const ParameterTable& table_;
  int64_t groups_ = 0;
  cuda::DeviceBuffer<ops::DigestSlice> slices_;
  cuda::DeviceBuffer<numerics::Digest128> digests_;
};

}  // namespace lockstep::model
