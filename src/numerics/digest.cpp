// SPDX-License-Identifier: Apache-2.0
#include "numerics/digest.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace lockstep::numerics {
namespace {

constexpr auto kKeys = [] {
  std::array<uint64_t, kDigestWords + kDigestKeyOffset> keys{};
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = digest_key(static_cast<int>(i));
  return keys;
}();

// A change within one 32-bit half changes lane 0 unless the other half plus its key is 0 mod 2^32. The same
// can not hold of lane 1 as long as the halves of their keys differ: so it always changes a lane.
constexpr bool halves_differ() {
  for (size_t i = 0; i < kDigestWords; ++i) {
    const uint64_t both = kKeys[i] ^ kKeys[i + kDigestKeyOffset];
    if (static_cast<uint32_t>(both) == 0 || (both >> 32) == 0) return false;
  }
  return true;
}
static_assert(halves_differ());

#if defined(__AVX2__)
// digest_product of 4 words.
inline __m256i products(__m256i words, const uint64_t* keys) {
  const __m256i sums = _mm256_add_epi32(words, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys)));
  return _mm256_mul_epu32(sums, _mm256_srli_epi64(sums, 32));
}
inline uint64_t lane_sum(__m256i x) {
  uint64_t lanes[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), x);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

Digest128 block_lanes(const unsigned char* bytes) {
  __m256i sum0 = _mm256_setzero_si256();
  __m256i sum1 = _mm256_setzero_si256();
  for (int i = 0; i < kDigestWords; i += 4) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i * 8));
    sum0 = _mm256_add_epi64(sum0, products(words, kKeys.data() + i));
    sum1 = _mm256_add_epi64(sum1, products(words, kKeys.data() + i + kDigestKeyOffset));
  }
  return {lane_sum(sum0), lane_sum(sum1)};
}
#else
Digest128 block_lanes(const unsigned char* bytes) {
  Digest128 lanes;
  for (int i = 0; i < kDigestWords; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i * 8, 8);
    lanes.lo += digest_product(word, kKeys[i]);
    lanes.hi += digest_product(word, kKeys[i + kDigestKeyOffset]);
  }
  return lanes;
}
#endif

}  // namespace

std::string Digest128::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (int i = 0; i < 16; ++i) {
    text[static_cast<size_t>(i)] = kDigits[(hi >> (60 - 4 * i)) & 15U];
    text[static_cast<size_t>(i) + 16] = kDigits[(lo >> (60 - 4 * i)) & 15U];
  }
  return text;
}

void DigestSum::add_block(uint64_t block_index, const void* bytes, size_t n) {
  LOCKSTEP_CHECK(n <= static_cast<size_t>(kDigestBlockBytes), "a digest block is at most 4096 bytes");
  Digest128 lanes;
  if (n == static_cast<size_t>(kDigestBlockBytes)) {
    lanes = block_lanes(static_cast<const unsigned char*>(bytes));
  } else {
    unsigned char padded[kDigestBlockBytes] = {};
    if (n > 0) std::memcpy(padded, bytes, n);
    lanes = block_lanes(padded);
  }
  sum_ = digest_add(sum_, digest_mix(lanes, block_index));
}

Digest128 digest_bytes(const void* bytes, size_t n) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  DigestSum sum;
  uint64_t index = 0;
  for (size_t offset = 0; offset < n; offset += static_cast<size_t>(kDigestBlockBytes)) {
    sum.add_block(index++, at + offset, std::min(n - offset, static_cast<size_t>(kDigestBlockBytes)));
  }
  return sum.finish(n);
}

}  // namespace lockstep::numerics
