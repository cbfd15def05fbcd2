// SPDX-License-Identifier: Apache-2.0
// Sampling without a sort. Top-k and top-p both keep a prefix of the tokens in order (logit, then id), so
// each is one cut in that order, found by selection.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "numerics/constants.h"
#include "ops/vocabulary/vocabulary_row.h"

namespace lockstep::ops {
namespace {

using numerics::kVocabTile;

constexpr uint64_t kKeepAll = ~uint64_t{0};

// Ascending keys: larger logit first (-0 equals +0), then smaller id.
uint64_t order_key(float logit, int64_t id) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);  // -0 becomes +0
  const uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (static_cast<uint64_t>(~ascending) << 32) | static_cast<uint64_t>(id);
}

int32_t largest(const float* logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) best = logits[i] > logits[best] ? i : best;
  return static_cast<int32_t>(best);
}

// Weights of one row, tile by tile.
class Row {
 public:
  Row(const VocabularyKernels& kernels, const float* logits, int64_t vocab, float scale, int32_t max)
      : kernels_(kernels), logits_(logits), vocab_(vocab), scale_(scale), max_(max) {}

  int64_t tiles() const { return (vocab_ + kVocabTile - 1) / kVocabTile; }
  // w of the tile's ids; returns d = M - M_j, or -1 when the tile is skipped.
  int64_t tile(int64_t j, uint64_t* w) const {
    const int64_t count = std::min(kVocabTile, vocab_ - j * kVocabTile);
    VocabularyTile tile;
    kernels_.tiles(logits_ + j * kVocabTile, count, scale_, &tile);
    if (!tile.any) return -1;
    kernels_.weights(logits_ + j * kVocabTile, count, scale_, tile.max_exponent, w);
    return max_ - tile.max_exponent;
  }
  int64_t count(int64_t j, int64_t sampleable) const {
    return std::clamp<int64_t>(sampleable - j * kVocabTile, 0, kVocabTile);
  }
  // Sum of the kept weights of a tile (its ids below sampleable, keys up to cut); w of the others becomes 0.
  uint64_t keep(int64_t j, int64_t sampleable, uint64_t cut, uint64_t* w) const {
    const int64_t n = count(j, sampleable);
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id = j * kVocabTile + i;
      if (cut != kKeepAll && order_key(logits_[id], id) > cut) w[i] = 0;
      sum += w[i];
    }
    return sum;
  }

 private:
  const VocabularyKernels& kernels_;
  const float* logits_;
  int64_t vocab_;
  float scale_;
  int32_t max_;
};

struct Candidate {
  uint64_t key;
  uint64_t mass;  // m
};

bool before(const Candidate& a, const Candidate& b) {
  return a.key < b.key;
}

// The key of the last candidate of the shortest prefix, in order of keys, whose masses reach `wanted`.
uint64_t mass_cut(std::vector<Candidate>* candidates, uint64_t wanted) {
  auto first = candidates->begin();
  auto last = candidates->end();
  uint64_t sum = 0;  // of everything before `first`
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, before);
    uint64_t left = 0;
    for (auto it = first; it != middle; ++it) left += it->mass;
    if (sum + left >= wanted) {
      last = middle;
    } else {
      sum += left;
      first = middle;
    }
  }
  return first->key;
}

// The largest key that top-k and top-p keep.
uint64_t kept_cut(const Row& row, const float* logits, const SamplingSettings& settings) {
  const bool few = settings.top_k > 0 && settings.top_k < settings.sampleable;
  if (!few && settings.top_p >= 1) return kKeepAll;
  std::vector<Candidate> candidates(settings.sampleable);
  for (int64_t i = 0; i < settings.sampleable; ++i) candidates[i] = {order_key(logits[i], i), 0};
  if (settings.top_p < 1) {
    uint64_t w[kVocabTile];
    for (int64_t j = 0; j < row.tiles(); ++j) {
      const int64_t d = row.tile(j, w);
      const int64_t n = row.count(j, settings.sampleable);
      for (int64_t i = 0; d >= 0 && i < n; ++i) candidates[j * kVocabTile + i].mass = shifted(w[i], d);
    }
  }
  if (few) {
    std::nth_element(candidates.begin(), candidates.begin() + (settings.top_k - 1), candidates.end(), before);
    if (settings.top_p >= 1) return candidates[settings.top_k - 1].key;
    candidates.resize(settings.top_k);
  }
  uint64_t all = 0;
  for (const Candidate& c : candidates) all += c.mass;
  const auto share = static_cast<uint64_t>(std::rint(settings.top_p * 0x1p32));
  const auto wanted =
      static_cast<uint64_t>((static_cast<unsigned __int128>(share) * all + 0xFFFFFFFFU) >> 32);
  return mass_cut(&candidates, wanted);
}

}  // namespace

int32_t sample_token(const VocabularyKernels& kernels, const float* logits, int64_t vocab,
                     const SamplingSettings& settings, const VocabularySums& sums, uint64_t random_bits) {
  if (settings.temperature == 0) return largest(logits, settings.sampleable);
  const Row row(kernels, logits, vocab, vocabulary_scale(settings.temperature), sums.max_exponent);
  const uint64_t cut = kept_cut(row, logits, settings);
  std::vector<uint64_t> mass(row.tiles());  // K_j >> d_j
  uint64_t all = 0;
  uint64_t w[kVocabTile];
  for (int64_t j = 0; j < row.tiles(); ++j) {
    if (row.count(j, settings.sampleable) == 0) break;
    const int64_t d = row.tile(j, w);
    mass[j] = d < 0 ? 0 : shifted(row.keep(j, settings.sampleable, cut, w), d);
    all += mass[j];
  }
  const auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits) * all) >> 64);
  uint64_t earlier = 0;
  for (int64_t j = 0; j < row.tiles(); ++j) {
    if (earlier + mass[j] <= target) {
      earlier += mass[j];
      continue;
    }
    const int64_t d = row.tile(j, w);
    row.keep(j, settings.sampleable, cut, w);
    uint64_t running = 0;
    for (int64_t i = 0;; ++i) {
      running += w[i];
      if (earlier + shifted(running, d) > target) return static_cast<int32_t>(j * kVocabTile + i);
    }
  }
  return largest(logits, settings.sampleable);  // nothing kept weighs anything
}

int32_t sample_token_cpu(const float* logits, int64_t vocab, const SamplingSettings& settings,
                         const VocabularySums& sums, uint64_t random_bits) {
  // No context here: the widest instruction set of this machine.
  static const VocabularyKernels kernels = [] {
    for (const cpu::Isa isa : {cpu::Isa::kAvx512, cpu::Isa::kAvx2}) {
      if (cpu::isa_available(isa)) return vocabulary_kernels(isa);
    }
    return vocabulary_kernels_portable();
  }();
  return sample_token(kernels, logits, vocab, settings, sums, random_bits);
}

}  // namespace lockstep::ops
