// SPDX-License-Identifier: Apache-2.0
// Tensor digest: 128 bit, over blocks of kDigestBlockBytes that are mixed with their index and added mod
// 2^128: any sharding on block borders, any order (docs/numerics.md, Digest). It finds faults; it is no
// cryptographic hash. The LOCKSTEP_HD functions are the definition, shared with the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "numerics/constants.h"
#include "numerics/host_device.h"

namespace lockstep::numerics {

struct Digest128 {
  uint64_t lo = 0, hi = 0;

  std::string hex() const;  // 32 lower-case digits, hi first
  bool operator==(const Digest128& other) const { return lo == other.lo && hi == other.hi; }
  bool operator!=(const Digest128& other) const { return !(*this == other); }
};

inline constexpr int kDigestWords = static_cast<int>(kDigestBlockBytes / 8);  // 64-bit words of a block
inline constexpr int kDigestKeyOffset = 4;  // lane 1 uses the keys of lane 0 from here on

// Key i of the sequence: SplitMix64 of i.
constexpr LOCKSTEP_HD uint64_t digest_key(int i) {
  uint64_t z = 0x4C6F636B73746570ULL + (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// (low half of word + low half of key) * (high half of word + high half of key); the sums mod 2^32, the
// product in 64 bits.
LOCKSTEP_HD uint64_t digest_product(uint64_t word, uint64_t key) {
  const auto low = static_cast<uint32_t>(word) + static_cast<uint32_t>(key);
  const auto high = static_cast<uint32_t>(word >> 32) + static_cast<uint32_t>(key >> 32);
  return static_cast<uint64_t>(low) * high;
}

// A bijection of 128 bits that depends on `number`.
LOCKSTEP_HD Digest128 digest_mix(Digest128 x, uint64_t number) {
  x.lo += (number + 1) * 0x9E3779B97F4A7C15ULL;
  x.hi ^= (number + 1) * 0xD1B54A32D192ED03ULL;
  for (int round = 0; round < 3; ++round) {
    x.lo = (x.lo ^ (x.lo >> 32)) * 0xBF58476D1CE4E5B9ULL;
    x.hi += x.lo;
    x.hi = (x.hi ^ (x.hi >> 29)) * 0x94D049BB133111EBULL;
    x.lo += x.hi;
  }
  x.lo ^= x.lo >> 31;
  x.hi ^= x.hi >> 32;
  return x;
}

LOCKSTEP_HD Digest128 digest_add(Digest128 a, Digest128 b) {
  const uint64_t lo = a.lo + b.lo;
  return {lo, a.hi + b.hi + (lo < a.lo ? 1U : 0U)};
}

// The two lanes of one whole block of words, before digest_mix.
LOCKSTEP_HD Digest128 digest_lanes(const uint64_t* words) {
  Digest128 lanes;
  for (int i = 0; i < kDigestWords; ++i) {
    lanes.lo += digest_product(words[i], digest_key(i));
    lanes.hi += digest_product(words[i], digest_key(i + kDigestKeyOffset));
  }
  return lanes;
}

// Number by which the sum of blocks is mixed at the end.
LOCKSTEP_HD Digest128 digest_finish(Digest128 sum, uint64_t total_bytes) {
  return digest_mix(sum, total_bytes ^ 0x8000000000000000ULL);
}

// A partial digest. Blocks may be added in any order, each index once.
class DigestSum {
 public:
  // n <= kDigestBlockBytes, less only for the last block of the data (the rest counts as zeros). `bytes` need
  // no alignment.
  void add_block(uint64_t block_index, const void* bytes, size_t n);
  void merge(const DigestSum& other) { sum_ = digest_add(sum_, other.sum_); }
  Digest128 finish(uint64_t total_bytes) const { return digest_finish(sum_, total_bytes); }

 private:
  Digest128 sum_;
};

Digest128 digest_bytes(const void* bytes, size_t n);

}  // namespace lockstep::numerics
