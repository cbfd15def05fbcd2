// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): random bits as a pure function of key and counter. No
// state.
#pragma once

#include <cstdint>

#include "numerics/host_device.h"

namespace lockstep::numerics {

struct Philox4 {
  uint32_t x[4];
};

LOCKSTEP_HD Philox4 philox4x32(uint64_t key, Philox4 counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  Philox4 c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(kMultiplier0) * c.x[0];
    const uint64_t b = static_cast<uint64_t>(kMultiplier1) * c.x[2];
    c = Philox4{{static_cast<uint32_t>(b >> 32) ^ c.x[1] ^ k0, static_cast<uint32_t>(b),
                 static_cast<uint32_t>(a >> 32) ^ c.x[3] ^ k1, static_cast<uint32_t>(a)}};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

// What a draw is for: streams of different purposes never meet.
enum class Purpose : uint8_t { kRollout = 0, kEval = 1, kShuffle = 2, kInit = 3, kData = 4 };

// 64 bits: words 0 and 1 of the block at (position, sample, low and high word of purpose*2^56 + n). n < 2^56.
LOCKSTEP_HD uint64_t draw(uint64_t seed, Purpose purpose, uint64_t n, uint32_t sample_index,
                          uint32_t position) {
  const uint64_t stream = (static_cast<uint64_t>(purpose) << 56) + n;
  const Philox4 block = philox4x32(seed, Philox4{{position, sample_index, static_cast<uint32_t>(stream),
                                                  static_cast<uint32_t>(stream >> 32)}});
  return static_cast<uint64_t>(block.x[0]) + (static_cast<uint64_t>(block.x[1]) << 32);
}

}  // namespace lockstep::numerics
