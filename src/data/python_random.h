// SPDX-License-Identifier: Apache-2.0
// Python's random.Random for seeds that are integers and for shuffle(): MT19937 seeded by init_by_array, and
// numbers below n by rejection. For --data-order miles only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::data {

class PythonRandom {
 public:
  // random.seed(seed); Python takes the absolute value.
  explicit PythonRandom(uint64_t seed);

  uint32_t next_word();
  // random._randbelow(n), n >= 1 and below 2^32.
  uint32_t below(uint32_t n);

  // random.shuffle(items).
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[below(static_cast<uint32_t>(i) + 1)]);
    }
  }

 private:
  static constexpr int kWords = 624;
  uint32_t state_[kWords];
  int next_ = kWords;
};

}  // namespace lockstep::data
