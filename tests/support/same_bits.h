// SPDX-License-Identifier: Apache-2.0
// Bitwise comparison and test inputs. No tolerance between our own paths.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/bytes.h"

namespace lockstep::testing {

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

// Compares bytes; on failure says how many differ, the first index (as row, column when columns > 0), bits
// and values.
template <typename T>
::testing::AssertionResult same_bits(const T* want, const T* got, int64_t n, int64_t columns = 0) {
  int64_t different = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (bits_of(want[i]) != bits_of(got[i])) {
      if (first < 0) first = i;
      ++different;
    }
  }
  if (different == 0) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure();
  failure << different << " of " << n << " differ; first at " << first;
  if (columns > 0) failure << " (row " << first / columns << ", column " << first % columns << ")";
  failure << ": want " << want[first] << " [" << to_hex(bits_of(want[first])) << "] got " << got[first]
          << " [" << to_hex(bits_of(got[first])) << "]";
  return failure;
}
template <typename V>
::testing::AssertionResult same_bits(const V& want, const V& got) {
  if (static_cast<size_t>(want.size()) != static_cast<size_t>(got.size())) {
    return ::testing::AssertionFailure() << "sizes " << want.size() << " and " << got.size();
  }
  return same_bits(want.data(), got.data(), static_cast<int64_t>(want.size()));
}

// A small generator for test inputs (SplitMix64); the seed is printed by the caller on failure.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  // About normal: sum of 4 uniforms, centred, variance 1/3.
  float value() {
    float sum = -2.0F;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(next() >> 40) * 0x1p-24F;
    return sum;
  }
  std::vector<float> values(int64_t n, float scale = 1.0F) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = value() * scale;
    return out;
  }

 private:
  uint64_t state_;
};

// An output buffer filled with NaN, so that an element that was not written is seen.
inline std::vector<float> poisoned(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), std::bit_cast<float>(0x7FBADBADU));
}

inline std::string test_data(const std::string& name) {
  return std::string(LOCKSTEP_TEST_DATA) + "/" + name;
}

// Files of tests/data/large.tar.xz (tokenizer, GSM8K), unpacked by CMake.
inline std::string large_test_data(const std::string& name) {
  return std::string(LOCKSTEP_LARGE_TEST_DATA) + "/" + name;
}

}  // namespace lockstep::testing
