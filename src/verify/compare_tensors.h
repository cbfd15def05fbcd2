// SPDX-License-Identifier: Apache-2.0
// Bytes, not values: a NaN equals itself, and -0 is not 0.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/status.h"

namespace lockstep::verify {

struct TensorPlace {
  const checkpoint::SafetensorsFile* file = nullptr;
  const checkpoint::TensorInfo* info = nullptr;
};
// By name in byte order.
using TensorSet = std::map<std::string, TensorPlace>;

// The files must outlive the set.
void add_tensors(const checkpoint::SafetensorsFile& file, TensorSet* set);

struct TensorComparison {
  int64_t tensors = 0;    // names in either set
  int64_t different = 0;  // of them
  int64_t bytes = 0;      // in set a
  // One line each, in the order of names, at most as many as asked for. The first is that of the first
  // differing tensor.
  std::vector<std::string> lines;
};

Result<TensorComparison> compare_tensors(const TensorSet& a, const TensorSet& b, int64_t max_lines);

// "0x3f800000 (1)": the bits of one element and what they mean.
std::string element_text(DType dtype, const void* element);
// "[1,2]" of a flat index; "[]" for a scalar.
std::string coordinates(const std::vector<int64_t>& shape, int64_t index);

}  // namespace lockstep::verify
