// SPDX-License-Identifier: Apache-2.0
#include "numerics/tc16_check.h"

#include <array>
#include <cstring>

#include "core/file.h"
#include "numerics/tc16.h"

namespace lockstep::numerics {
namespace {

constexpr uint32_t kMagic = 0x36314354U;  // "TC16"
constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 8;
constexpr int64_t kHeaderBytes = 16;
constexpr int64_t kABytes = kRows * kTc16Products * 2;     // of one block
constexpr int64_t kBBytes = kTc16Products * kColumns * 2;  // of one block
constexpr int64_t kCBytes = kRows * kColumns * 4;          // of one block, D likewise
constexpr int64_t kBlockBytes = kABytes + kBBytes + 2 * kCBytes;

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

void check_block(const char* a, const char* b, const char* c, const char* d, Tc16Check* check) {
  std::array<uint16_t, kRows * kTc16Products> a_values;
  std::array<uint16_t, kTc16Products * kColumns> b_values;
  std::memcpy(a_values.data(), a, kABytes);
  std::memcpy(b_values.data(), b, kBBytes);
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const uint32_t got =
        tc16_step_bits(load<uint32_t>(c + i * 4), a_values.data() + (i / kColumns) * kTc16Products,
                       b_values.data() + i % kColumns, kColumns);
    if (got == load<uint32_t>(d + i * 4)) {
      ++check->equal;
    } else if (check->first_difference < 0) {
      check->first_difference = check->total;
    }
    ++check->total;
  }
}

}  // namespace

Result<Tc16Check> check_tc16_file(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string file, read_file(path));
  if (file.size() < kHeaderBytes || load<uint32_t>(file.data()) != kMagic) {
    return invalid("{}: not a TC16 file (magic TC16 expected); use tests/data/golden/tc16_h200.bin", path);
  }
  const auto version = load<uint32_t>(file.data() + 4);
  const auto distributions = static_cast<int64_t>(load<uint32_t>(file.data() + 8));
  const auto blocks = static_cast<int64_t>(load<uint32_t>(file.data() + 12));
  if (version != 1)
    return invalid("{}: TC16 file of version {}; this release reads version 1", path, version);
  constexpr int64_t kMost = 65536;  // keeps the product below far from overflow
  if (distributions > kMost || blocks > kMost ||
      static_cast<int64_t>(file.size()) != kHeaderBytes + distributions * blocks * kBlockBytes) {
    return invalid("{}: {} bytes do not fit {} distributions of {} blocks; the file is cut or damaged", path,
                   file.size(), distributions, blocks);
  }
  Tc16Check check;
  const char* at = file.data() + kHeaderBytes;
  for (int64_t distribution = 0; distribution < distributions; ++distribution) {
    const char* a = at;
    const char* b = a + blocks * kABytes;
    const char* c = b + blocks * kBBytes;
    const char* d = c + blocks * kCBytes;
    for (int64_t block = 0; block < blocks; ++block) {
      check_block(a + block * kABytes, b + block * kBBytes, c + block * kCBytes, d + block * kCBytes, &check);
    }
    at = d + blocks * kCBytes;
  }
  return check;
}

}  // namespace lockstep::numerics
