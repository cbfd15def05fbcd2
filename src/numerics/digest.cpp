// SPDX-License-Identifier: Apache-2.0
#include "numerics/digest.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace lockstep::numerics {
namespace {

constexpr int kWords = kDigestBlockBytes / 8;

// Keys of all words of a block, in 64-bit lanes.
struct KeyTable {
  alignas(64) uint64_t key[4][kWords];
};
constexpr KeyTable make_keys() {
  KeyTable table{};
  for (int k = 0; k < 4; ++k) {
    for (int i = 0; i < kWords; ++i) {
      table.key[k][i] = static_cast<uint32_t>(internal::kDigestStart[k] +
                                              internal::kDigestStep[k] * static_cast<uint32_t>(i));
    }
  }
  return table;
}
constexpr KeyTable kKeys = make_keys();

#if defined(__AVX2__)
uint64_t sum_lanes(__m256i v) {
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

internal::DigestPair block_sums(const uint64_t* words) {
  __m256i a = _mm256_setzero_si256();
  __m256i b = _mm256_setzero_si256();
  const auto key = [](int k, int i) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(&kKeys.key[k][i]));
  };
  for (int i = 0; i < kWords; i += 4) {
    const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + i));
    const __m256i high = _mm256_srli_epi64(w, 32);
    // The multiplier reads the low 32 bits of each lane, so sums of 32 bits need no mask.
    const __m256i pa = _mm256_mul_epu32(_mm256_add_epi32(w, key(0, i)), _mm256_add_epi32(high, key(1, i)));
    const __m256i pb = _mm256_mul_epu32(_mm256_add_epi32(w, key(2, i)), _mm256_add_epi32(high, key(3, i)));
    a = _mm256_add_epi64(a, _mm256_add_epi64(pa, _mm256_shuffle_epi32(w, _MM_SHUFFLE(2, 3, 0, 1))));
    b = _mm256_add_epi64(b, _mm256_add_epi64(pb, w));
  }
  return {sum_lanes(a), sum_lanes(b)};
}
#else
internal::DigestPair block_sums(const uint64_t* words) {
  internal::DigestPair sums{0, 0};
  for (int i = 0; i < kWords; ++i) {
    const uint64_t w = words[i];
    const auto key = [i](int k) { return static_cast<uint32_t>(kKeys.key[k][i]); };
    sums.a += internal::digest_product(w, key(0), key(1)) + (w << 32 | w >> 32);
    sums.b += internal::digest_product(w, key(2), key(3)) + w;
  }
  return sums;
}
#endif

}  // namespace

std::string Digest128::hex() const {
  return to_hex(high) + to_hex(low);
}

std::optional<Digest128> Digest128::from_hex(std::string_view hex) {
  const std::optional<std::string> bytes = hex.size() == 32 ? lockstep::from_hex(hex) : std::nullopt;
  if (!bytes) return std::nullopt;
  Digest128 out;
  for (size_t i = 0; i < 8; ++i) {
    out.high = out.high << 8 | static_cast<unsigned char>((*bytes)[i]);
    out.low = out.low << 8 | static_cast<unsigned char>((*bytes)[8 + i]);
  }
  if (out.hex() != hex) return std::nullopt;
  return out;
}

void DigestSum::add_block(uint64_t block_index, const void* bytes, size_t size) {
  alignas(64) uint64_t words[kWords];
  if (size < sizeof(words)) std::memset(words, 0, sizeof(words));
  std::memcpy(words, bytes, std::min(size, sizeof(words)));
  const internal::DigestPair block = internal::digest_finish_block(block_sums(words), block_index);
  low_ += block.a;
  high_ += block.b;
}

void DigestSum::merge(const DigestSum& other) {
  low_ += other.low_;
  high_ += other.high_;
}

Digest128 DigestSum::finish(uint64_t total_bytes) const {
  const internal::DigestPair out = internal::digest_finish_block({low_, high_}, total_bytes);
  return {out.a, out.b};
}

Digest128 digest_bytes(const void* bytes, size_t size) {
  const auto* p = static_cast<const unsigned char*>(bytes);
  DigestSum sum;
  for (size_t offset = 0, index = 0; offset < size; offset += kDigestBlockBytes, ++index) {
    sum.add_block(index, p + offset, std::min<size_t>(kDigestBlockBytes, size - offset));
  }
  return sum.finish(size);
}

}  // namespace lockstep::numerics
