// SPDX-License-Identifier: Apache-2.0
#include "numerics/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "same_bits.h"

namespace lockstep::numerics {
namespace {

using lockstep::testing::TestRandom;

constexpr size_t kBlock = kDigestBlockBytes;

std::vector<unsigned char> random_bytes(size_t n, uint64_t seed) {
  TestRandom random(seed);
  std::vector<unsigned char> bytes(n);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.next() >> 56);
  return bytes;
}

// The definition: digest_lanes, digest_mix, digest_add, digest_finish on zero-padded blocks.
Digest128 defined_digest(const std::vector<unsigned char>& bytes) {
  Digest128 sum;
  for (size_t offset = 0; offset < bytes.size(); offset += kBlock) {
    std::vector<uint64_t> words(kDigestWords, 0);
    std::memcpy(words.data(), bytes.data() + offset, std::min(kBlock, bytes.size() - offset));
    sum = digest_add(sum, digest_mix(digest_lanes(words.data()), offset / kBlock));
  }
  return digest_finish(sum, bytes.size());
}

TEST(Digest, EqualsItsDefinitionForEveryLength) {
  const auto bytes = random_bytes(9000, 1);
  for (size_t n = 0; n <= bytes.size();
       n += n < 600 || n % kBlock > kBlock - 40 || n % kBlock < 40 ? 1 : 37) {
    const std::vector<unsigned char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    ASSERT_EQ(digest_bytes(part.data(), n).hex(), defined_digest(part).hex()) << n;
  }
}

TEST(Digest, LengthsOfZerosAndOfDataAllDiffer) {
  const auto bytes = random_bytes(9001, 2);
  const std::vector<unsigned char> zeros(9001, 0);
  std::set<std::string> seen;
  for (size_t n = 0; n <= 9000; ++n) {
    seen.insert(digest_bytes(bytes.data(), n).hex());
    if (n > 0) seen.insert(digest_bytes(zeros.data(), n).hex());
  }
  EXPECT_EQ(seen.size(), 9001U + 9000U);
}

TEST(Digest, EveryFlippedBitIsSeen) {
  for (const int kind : {0, 1, 2}) {
    auto bytes = kind == 0 ? random_bytes(2 * kBlock + 100, 3)
                           : std::vector<unsigned char>(2 * kBlock + 100, kind == 1 ? 0 : 0xFF);
    const Digest128 whole = digest_bytes(bytes.data(), bytes.size());
    std::set<std::string> seen{whole.hex()};
    for (size_t bit = 0; bit < bytes.size() * 8; bit += bit < kBlock * 8 ? 1 : 7) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      const bool fresh = seen.insert(digest_bytes(bytes.data(), bytes.size()).hex()).second;
      bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      ASSERT_TRUE(fresh) << "bit " << bit;
    }
  }
}

// The proof of the flipped bit needs: where the partner of lane 0 is 0, that of lane 1 is not.
TEST(Digest, AFlipIsSeenWhereThePartnerInOneLaneIsZero) {
  std::vector<uint64_t> words(kDigestWords);
  for (int lane = 0; lane < 2; ++lane) {
    for (int i = 0; i < kDigestWords; ++i) words[i] = 0 - digest_key(i + lane * kDigestKeyOffset);
    for (int i = 0; i < kDigestWords; ++i) {  // both halves of the sums are exactly 0
      const uint64_t key = digest_key(i + lane * kDigestKeyOffset);
      words[i] = static_cast<uint32_t>(0U - static_cast<uint32_t>(key)) |
                 (static_cast<uint64_t>(0U - static_cast<uint32_t>(key >> 32)) << 32);
    }
    const Digest128 whole = digest_lanes(words.data());
    EXPECT_EQ(lane == 0 ? whole.lo : whole.hi, 0U);
    for (int bit = 0; bit < kDigestWords * 64; ++bit) {
      words[bit / 64] ^= uint64_t{1} << (bit % 64);
      ASSERT_NE(digest_lanes(words.data()).hex(), whole.hex()) << bit;
      words[bit / 64] ^= uint64_t{1} << (bit % 64);
    }
  }
}

TEST(Digest, SwapsAreSeen) {
  auto bytes = random_bytes(4 * kBlock, 4);
  const std::string whole = digest_bytes(bytes.data(), bytes.size()).hex();
  TestRandom random(5);
  const auto swap = [&](size_t width, size_t a, size_t b) {
    if (std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(a * width),
                   bytes.begin() + static_cast<std::ptrdiff_t>((a + 1) * width),
                   bytes.begin() + static_cast<std::ptrdiff_t>(b * width))) {
      return;
    }
    for (int back = 0; back < 2; ++back) {
      for (size_t i = 0; i < width; ++i) std::swap(bytes[a * width + i], bytes[b * width + i]);
      const bool same = digest_bytes(bytes.data(), bytes.size()).hex() == whole;
      ASSERT_EQ(same, back == 1) << width << " bytes at " << a << " and " << b;
    }
  };
  for (const size_t width : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{32}, kBlock}) {
    const auto count = static_cast<int64_t>(bytes.size() / width);
    for (int i = 0; i < 2000; ++i) {
      const auto a = static_cast<size_t>(random.below(count));
      swap(width, a,
           i % 2 == 0 ? (a + 1) % static_cast<size_t>(count) : static_cast<size_t>(random.below(count)));
    }
  }
}

// -0 and +0, and a NaN, are bytes like any other.
TEST(Digest, SignOfZeroCounts) {
  std::vector<float> values(1000, 0.0F);
  const Digest128 plus = digest_bytes(values.data(), 4000);
  values[999] = -0.0F;
  EXPECT_NE(digest_bytes(values.data(), 4000), plus);
}

TEST(Digest, AnySharding) {
  const auto bytes = random_bytes(37 * kBlock + 1234, 6);
  const Digest128 whole = digest_bytes(bytes.data(), bytes.size());
  const size_t blocks = (bytes.size() + kBlock - 1) / kBlock;
  TestRandom random(7);
  for (int run = 0; run < 50; ++run) {
    std::vector<size_t> order(blocks);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = blocks; i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    }
    std::vector<DigestSum> shards(static_cast<size_t>(1 + random.below(9)));
    for (const size_t b : order) {
      DigestSum& shard = shards[static_cast<size_t>(random.below(static_cast<int64_t>(shards.size())))];
      shard.add_block(b, bytes.data() + b * kBlock, std::min(kBlock, bytes.size() - b * kBlock));
    }
    DigestSum all;
    for (const DigestSum& shard : shards) all.merge(shard);
    ASSERT_EQ(all.finish(bytes.size()).hex(), whole.hex());
  }
}

TEST(Digest, AlignmentDoesNotMatter) {
  const auto bytes = random_bytes(3 * kBlock, 8);
  const Digest128 whole = digest_bytes(bytes.data(), bytes.size());
  for (size_t shift = 0; shift < 64; ++shift) {
    std::vector<unsigned char> moved(bytes.size() + shift);
    std::copy(bytes.begin(), bytes.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
    ASSERT_EQ(digest_bytes(moved.data() + shift, bytes.size()), whole);
  }
}

TEST(Digest, HexIsHighWordFirst) {
  EXPECT_EQ((Digest128{0x0123456789ABCDEFULL, 0xFEDCBA9876543210ULL}).hex(),
            "fedcba98765432100123456789abcdef");
}

}  // namespace
}  // namespace lockstep::numerics
