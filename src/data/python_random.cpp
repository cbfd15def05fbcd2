// SPDX-License-Identifier: Apache-2.0
#include "data/python_random.h"

#include <bit>

#include "core/check.h"

namespace lockstep::data {

PythonRandom::PythonRandom(uint64_t seed) {
  // The key is the seed in words of 32 bits, lowest first, without leading zero words (one word for 0).
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const int key_words = key[1] != 0 ? 2 : 1;

  state_[0] = 19650218U;
  for (int i = 1; i < kWords; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
  int i = 1;
  int j = 0;
  const auto step_i = [&] {
    if (++i >= kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (int k = kWords; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525U)) + key[j] +
                static_cast<uint32_t>(j);
    step_i();
    if (++j >= key_words) j = 0;
  }
  for (int k = kWords - 1; k > 0; --k) {
    state_[i] =
        (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941U)) - static_cast<uint32_t>(i);
    step_i();
  }
  state_[0] = 0x80000000U;
}

uint32_t PythonRandom::next_word() {
  constexpr int kMiddle = 397;
  if (next_ >= kWords) {
    for (int i = 0; i < kWords; ++i) {
      const uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7FFFFFFFU);
      state_[i] = state_[(i + kMiddle) % kWords] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908B0DFU : 0U);
    }
    next_ = 0;
  }
  uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680U;
  y ^= (y << 15) & 0xEFC60000U;
  return y ^ (y >> 18);
}

uint32_t PythonRandom::below(uint32_t n) {
  LOCKSTEP_CHECK(n >= 1);
  // getrandbits(k) of k = n.bit_length() takes the high bits of a word; too large ones are drawn again.
  const int bits = std::bit_width(n);
  uint32_t value = next_word() >> (32 - bits);
  while (value >= n) value = next_word() >> (32 - bits);
  return value;
}

}  // namespace lockstep::data
