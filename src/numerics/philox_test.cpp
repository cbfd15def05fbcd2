// SPDX-License-Identifier: Apache-2.0
#include "numerics/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::numerics {
namespace {

void expect_words(const Philox4& got, uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3) {
  EXPECT_EQ(got.x[0], x0);
  EXPECT_EQ(got.x[1], x1);
  EXPECT_EQ(got.x[2], x2);
  EXPECT_EQ(got.x[3], x3);
}

// The three published answers of Random123 for philox4x32, 10 rounds.
TEST(Philox, KnownAnswersOfRandom123) {
  expect_words(philox4x32(0, 0, 0, 0, 0), 0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U);
  constexpr uint32_t kOnes = 0xFFFFFFFFU;
  expect_words(philox4x32(~uint64_t{0}, kOnes, kOnes, kOnes, kOnes), 0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U,
               0x6D5451FDU);
  expect_words(philox4x32(0x299F31D0A4093822ULL, 0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U),
               0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U);
}

TEST(Philox, DrawIsTheCounterOfTheDefinition) {
  const uint64_t seed = 0x0123456789ABCDEFULL;
  const uint64_t n = 0x00AABBCCDDEEFF11ULL;
  const Philox4 out = philox4x32(seed, 77, 5, 0xDDEEFF11U, 0x02AABBCCU);
  EXPECT_EQ(draw(seed, Purpose::kShuffle, n, 5, 77), out.x[0] + (static_cast<uint64_t>(out.x[1]) << 32));
}

TEST(Philox, EveryArgumentCounts) {
  std::set<uint64_t> draws;
  for (int bit = 0; bit < 64; ++bit) draws.insert(draw(uint64_t{1} << bit, Purpose::kRollout, 0, 0, 0));
  for (int bit = 0; bit < 56; ++bit) draws.insert(draw(0, Purpose::kRollout, uint64_t{1} << bit, 0, 0));
  for (int bit = 0; bit < 32; ++bit) {
    draws.insert(draw(0, Purpose::kRollout, 0, uint32_t{1} << bit, 0));
    draws.insert(draw(0, Purpose::kRollout, 0, 0, uint32_t{1} << bit));
  }
  for (const Purpose purpose : {Purpose::kRollout, Purpose::kEval, Purpose::kShuffle, Purpose::kInit,
                                Purpose::kData, Purpose::kDemo}) {
    draws.insert(draw(0, purpose, 0, 0, 0));
  }
  EXPECT_EQ(draws.size(), 64U + 56U + 32U + 32U + 6U);
}

}  // namespace
}  // namespace lockstep::numerics
