// SPDX-License-Identifier: Apache-2.0
// 128-bit digest of a tensor's bytes, fast enough to take every step. Blocks of 4096 bytes are hashed on
// their own, mixed with their index and added, so any sharding on block borders and any order of threads
// gives the same digest. It tells accidents apart, not attacks; files are hashed with SHA-256. Definition:
// docs/numerics.md, Digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "numerics/constants.h"
#include "numerics/host_device.h"

namespace lockstep::numerics {

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Digest128&) const = default;
  // 32 lower-case digits, high word first.
  std::string hex() const;
  // Exactly what hex() writes, else none.
  static std::optional<Digest128> from_hex(std::string_view hex);
};

namespace internal {

// Keys of word i are arithmetic progressions of odd steps.
inline constexpr uint32_t kDigestStart[4] = {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344};
inline constexpr uint32_t kDigestStep[4] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F};

LOCKSTEP_HD uint64_t digest_product(uint64_t word, uint32_t low_key, uint32_t high_key) {
  return static_cast<uint64_t>(static_cast<uint32_t>(word) + low_key) *
         static_cast<uint64_t>(static_cast<uint32_t>(word >> 32) + high_key);
}
// Bijective mixing of 64 bits (the finaliser form of MurmurHash3 with other constants).
LOCKSTEP_HD uint64_t digest_mix(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 32);
}
struct DigestPair {
  uint64_t a;
  uint64_t b;
};
// Two Feistel steps over the block's sums and index.
LOCKSTEP_HD DigestPair digest_finish_block(DigestPair sums, uint64_t index) {
  const uint64_t a = sums.a + digest_mix(index + 0x9E3779B97F4A7C15ULL);
  const uint64_t b = sums.b ^ digest_mix(index + 0xC2B2AE3D27D4EB4FULL);
  const uint64_t low = digest_mix(a + digest_mix(b));
  const uint64_t high = digest_mix(b ^ low);
  return {low, high};
}

}  // namespace internal

class DigestSum {
 public:
  // size: kDigestBlockBytes, or less for the last block (zero padding counts, the total length tells it
  // apart).
  void add_block(uint64_t block_index, const void* bytes, size_t size);
  void merge(const DigestSum& other);
  Digest128 finish(uint64_t total_bytes) const;

 private:
  uint64_t low_ = 0;
  uint64_t high_ = 0;
};

Digest128 digest_bytes(const void* bytes, size_t size);

}  // namespace lockstep::numerics
