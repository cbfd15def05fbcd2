// SPDX-License-Identifier: Apache-2.0
// libFuzzer: a safetensors header and a size of data made of any bytes. What is accepted must keep the
// reader's promises: names sorted and unique, tensors tiling the data.
#include <algorithm>
#include <cstdlib>

#include "checkpoint/safetensors.h"
#include "core/bytes.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lockstep::checkpoint::TensorInfo;
  if (size < 2) return 0;
  const int64_t data_bytes = lockstep::load_le<uint16_t>(data);
  const std::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto parsed = lockstep::checkpoint::parse_safetensors_header("fuzz", header, data_bytes);
  if (!parsed.ok()) {
    require(parsed.status().code() == lockstep::StatusCode::kInvalid);
    require(parsed.status().message().find('\n') == std::string::npos);
    return 0;
  }
  std::vector<TensorInfo> tensors = parsed.value().tensors;
  for (size_t i = 1; i < tensors.size(); ++i) require(tensors[i - 1].name < tensors[i].name);
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin_bytes, a.size_bytes) < std::pair(b.begin_bytes, b.size_bytes);
  });
  int64_t covered = 0;
  for (const TensorInfo& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    require(tensor.elements() == elements && tensor.begin_bytes == covered);
    covered += tensor.size_bytes;
  }
  require(covered == data_bytes);
  return 0;
}
