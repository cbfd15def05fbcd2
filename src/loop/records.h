// SPDX-License-Identifier: Apache-2.0
// Bytes under the digests of the ledger: what a phase of a step produced, in canonical order
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "numerics/digest.h"

namespace lockstep::loop {

// Little-endian, each list preceded by its length as u64, so that no two different inputs share their bytes.
class RecordBytes {
 public:
  void add(uint64_t value);
  void add(double value);
  void add(const std::string& text);
  void add(const std::vector<int32_t>& values);
  void add(const std::vector<float>& values);
  void add(const std::vector<double>& values);
  numerics::Digest128 digest() const { return numerics::digest_bytes(bytes_.data(), bytes_.size()); }

 private:
  void raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string bytes_;
};

}  // namespace lockstep::loop
