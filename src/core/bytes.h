// SPDX-License-Identifier: Apache-2.0
// Little-endian coding, bits and hexadecimal. Lockstep runs on little-endian machines only (checked here).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "Lockstep's files and digests are little-endian");

template <typename T>
T load_le(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void store_le(void* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(T));
}

// Lower-case hexadecimal of `size` bytes in order.
std::string to_hex(const void* bytes, size_t size);
// 16 lower-case digits, most significant first.
std::string to_hex(uint64_t value);
std::optional<std::string> from_hex(std::string_view hex);

}  // namespace lockstep
