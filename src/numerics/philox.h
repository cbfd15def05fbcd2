// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011) and the draw of docs/numerics.md, Randomness. No state.
#pragma once

#include <cstdint>

#include "numerics/host_device.h"

namespace lockstep::numerics {

struct Philox4 {
  uint32_t x[4];
};

// Counter (c0, c1, c2, c3); key words: low, then high half of `key`.
LOCKSTEP_HD Philox4 philox4x32(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53U) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57U) * c2;
    const uint32_t y0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t y2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = y0;
    c2 = y2;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

// What a draw is for. A number once given is never reused.
enum class Purpose : uint8_t {
  kRollout = 0,  // n: ordinal of the prompt in the run's data order, from step 0
  kEval = 1,     // n: step * rows + row
  kShuffle = 2,
  kInit = 3,
  kData = 4,
  kDemo = 5,
};

// 64 random bits. n < 2^56.
LOCKSTEP_HD uint64_t draw(uint64_t seed, Purpose purpose, uint64_t n, uint32_t sample_index,
                          uint32_t position) {
  const uint64_t stream = (static_cast<uint64_t>(purpose) << 56) + n;
  const Philox4 out = philox4x32(seed, position, sample_index, static_cast<uint32_t>(stream),
                                 static_cast<uint32_t>(stream >> 32));
  return out.x[0] | (static_cast<uint64_t>(out.x[1]) << 32);
}

}  // namespace lockstep::numerics
