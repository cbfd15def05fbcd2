// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <array>

#include "core/check.h"

namespace lockstep {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  int64_t size_bytes;
};

constexpr std::array<Entry, 13> kEntries = {{{DType::kF32, "F32", 4},
                                             {DType::kF64, "F64", 8},
                                             {DType::kF16, "F16", 2},
                                             {DType::kBF16, "BF16", 2},
                                             {DType::kI8, "I8", 1},
                                             {DType::kI16, "I16", 2},
                                             {DType::kI32, "I32", 4},
                                             {DType::kI64, "I64", 8},
                                             {DType::kU8, "U8", 1},
                                             {DType::kU16, "U16", 2},
                                             {DType::kU32, "U32", 4},
                                             {DType::kU64, "U64", 8},
                                             {DType::kBool, "BOOL", 1}}};

const Entry& entry(DType dtype) {
  for (const Entry& e : kEntries) {
    if (e.dtype == dtype) return e;
  }
  check_failed(__FILE__, __LINE__, "known dtype", "");
}

}  // namespace

int64_t dtype_size_bytes(DType dtype) {
  return entry(dtype).size_bytes;
}
std::string_view dtype_name(DType dtype) {
  return entry(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (e.name == name) return e.dtype;
  }
  return std::nullopt;
}

}  // namespace lockstep
