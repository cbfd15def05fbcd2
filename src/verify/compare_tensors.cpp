// SPDX-License-Identifier: Apache-2.0
#include "verify/compare_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/bytes.h"
#include "ledger/json_text.h"
#include "numerics/bfloat16.h"

namespace lockstep::verify {

using checkpoint::quote_name;
using checkpoint::TensorInfo;
using checkpoint::type_text;

namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

struct Element {
  bool is_float = false;
  double value = 0;  // of a float
  uint64_t bits = 0;
};

Element load_element(DType dtype, const void* element) {
  Element e;
  std::memcpy(&e.bits, element, static_cast<size_t>(dtype_size_bytes(dtype)));
  e.is_float = true;
  switch (dtype) {
    case DType::kF32:
      e.value = static_cast<double>(load_le<float>(element));
      break;
    case DType::kF64:
      e.value = load_le<double>(element);
      break;
    case DType::kBF16:
      e.value = static_cast<double>(numerics::bfloat16_to_float(load_le<uint16_t>(element)));
      break;
    case DType::kF16:
      e.value = static_cast<double>(numerics::float16_to_float(load_le<uint16_t>(element)));
      break;
    default:
      e.is_float = false;
  }
  return e;
}

std::string integer_text(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kI8:
      return std::to_string(static_cast<int8_t>(bits));
    case DType::kI16:
      return std::to_string(static_cast<int16_t>(bits));
    case DType::kI32:
      return std::to_string(static_cast<int32_t>(bits));
    case DType::kI64:
      return std::to_string(static_cast<int64_t>(bits));
    default:
      return std::to_string(bits);
  }
}

// What a person would ask next about the first difference.
std::string note(DType dtype, const void* a, const void* b) {
  const Element left = load_element(dtype, a);
  const Element right = load_element(dtype, b);
  if (!left.is_float) return "";
  if (left.value == 0 && right.value == 0) return "; sign of zero";
  if (std::isnan(left.value) && std::isnan(right.value)) return "; both NaN, other payload";
  return "";
}

struct Difference {
  int64_t elements = 0;  // that differ
  int64_t first = -1;
  unsigned char a[8] = {};
  unsigned char b[8] = {};
};

Result<Difference> compare_bytes(const TensorPlace& a, const TensorPlace& b) {
  Difference found;
  const int64_t width = dtype_size_bytes(a.info->dtype);
  const int64_t size = a.info->size_bytes;
  std::vector<unsigned char> left(static_cast<size_t>(std::min(size, kPieceBytes)));
  std::vector<unsigned char> right(left.size());
  for (int64_t begin = 0; begin < size; begin += kPieceBytes) {
    const int64_t n = std::min(kPieceBytes, size - begin);
    LOCKSTEP_RETURN_IF_ERROR(a.file->read_bytes(*a.info, begin, n, left.data()));
    LOCKSTEP_RETURN_IF_ERROR(b.file->read_bytes(*b.info, begin, n, right.data()));
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(n)) == 0) continue;
    for (int64_t at = 0; at < n; at += width) {
      if (std::memcmp(&left[static_cast<size_t>(at)], &right[static_cast<size_t>(at)],
                      static_cast<size_t>(width)) == 0) {
        continue;
      }
      if (found.first < 0) {
        found.first = (begin + at) / width;
        std::memcpy(found.a, &left[static_cast<size_t>(at)], static_cast<size_t>(width));
        std::memcpy(found.b, &right[static_cast<size_t>(at)], static_cast<size_t>(width));
      }
      ++found.elements;
    }
  }
  return found;
}

// "" when the two are the same.
Result<std::string> compare_one(const std::string& name, const TensorPlace& a, const TensorPlace& b) {
  const TensorInfo& left = *a.info;
  const TensorInfo& right = *b.info;
  if (left.dtype != right.dtype || left.shape != right.shape) {
    return fmt::format("tensor {}: {} and {}", quote_name(name), type_text(left.dtype, left.shape),
                       type_text(right.dtype, right.shape));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Difference found, compare_bytes(a, b));
  if (found.elements == 0) return std::string();
  return fmt::format("tensor {} {}: {} of {} elements differ; first at {}: {} and {}{}", quote_name(name),
                     type_text(left.dtype, left.shape), found.elements, left.elements(),
                     coordinates(left.shape, found.first), element_text(left.dtype, found.a),
                     element_text(left.dtype, found.b), note(left.dtype, found.a, found.b));
}

}  // namespace

std::string element_text(DType dtype, const void* element) {
  const Element e = load_element(dtype, element);
  const std::string hex = to_hex(e.bits).substr(16 - 2 * static_cast<size_t>(dtype_size_bytes(dtype)));
  std::string value;
  if (!e.is_float) {
    value = integer_text(dtype, e.bits);
  } else if (dtype == DType::kF64) {
    value = ledger::json_text(e.value);
  } else {
    value = ledger::json_text(static_cast<float>(e.value));
  }
  value.erase(std::remove(value.begin(), value.end(), '"'), value.end());
  return fmt::format("0x{} ({})", hex, value);
}

std::string coordinates(const std::vector<int64_t>& shape, int64_t index) {
  std::vector<int64_t> at(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    at[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(at, ","));
}

void add_tensors(const checkpoint::SafetensorsFile& file, TensorSet* set) {
  for (const TensorInfo& tensor : file.tensors()) (*set)[tensor.name] = {&file, &tensor};
}

Result<TensorComparison> compare_tensors(const TensorSet& a, const TensorSet& b, int64_t max_lines) {
  TensorComparison result;
  const auto report = [&](std::string line) {
    ++result.different;
    if (static_cast<int64_t>(result.lines.size()) < max_lines) result.lines.push_back(std::move(line));
  };
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() || right != b.end()) {
    ++result.tensors;
    const bool only_a = right == b.end() || (left != a.end() && left->first < right->first);
    const bool only_b = left == a.end() || (right != b.end() && right->first < left->first);
    if (left != a.end() && !only_b) result.bytes += left->second.info->size_bytes;
    if (only_a) {
      report(fmt::format("tensor {}: only in the first", quote_name(left->first)));
      ++left;
    } else if (only_b) {
      report(fmt::format("tensor {}: only in the second", quote_name(right->first)));
      ++right;
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(std::string line, compare_one(left->first, left->second, right->second));
      if (!line.empty()) report(std::move(line));
      ++left;
      ++right;
    }
  }
  return result;
}

}  // namespace lockstep::verify
