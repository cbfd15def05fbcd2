// SPDX-License-Identifier: Apache-2.0
// Sampling without a sort. Top-k and top-p both keep a prefix of the tokens in order (logit, then id): the
// prefix whose counts, or masses, reach a number. A histogram over the logits finds the bucket where that
// happens; only its tokens are looked at one by one.
#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/constants.h"
#include "ops/vocabulary/vocabulary_row.h"

namespace lockstep::ops {
namespace {

using numerics::kVocabTile;

// A place in the order: tokens up to and including it are kept.
struct Cut {
  float logit;
  int64_t id;
  bool keeps(float other, int64_t other_id) const {
    return other > logit || (other == logit && other_id <= id);
  }
};

// The smallest id of the largest logit.
int32_t largest(const float* logits, int64_t n) {
  constexpr int64_t kLanes = 16;
  float best[kLanes];
  std::fill(best, best + kLanes, logits[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
  }
  float top = *std::max_element(best, best + kLanes);
  for (; i < n; ++i) top = std::max(top, logits[i]);
  return static_cast<int32_t>(std::find(logits, logits + n, top) - logits);
}

struct Candidate {
  float logit;
  int32_t id;
  uint64_t mass;
};

bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The last candidate, in order, of the shortest prefix whose masses reach `wanted` (at least one).
Cut last_of_prefix(std::vector<Candidate>* candidates, uint64_t wanted) {
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
  return {first->logit, first->id};
}

// One row: weights of all tokens, and who is kept.
class Row {
 public:
  Row(const VocabularyKernels& kernels, const float* logits, int64_t vocab, const SamplingSettings& settings,
      int32_t max_exponent)
      : logits_(logits),
        sampleable_(settings.sampleable),
        max_exponent_(max_exponent),
        scale_(vocabulary_scale(settings.temperature)),
        w_(memory().w),
        shift_(memory().shift) {
    const int64_t tiles = (sampleable_ + kVocabTile - 1) / kVocabTile;
    w_.resize(tiles * kVocabTile);
    shift_.resize(tiles);
    for (int64_t j = 0; j < tiles; ++j) {
      const int64_t first = j * kVocabTile;
      int32_t tile_max = 0;
      const bool any = kernels.weights(logits + first, std::min(kVocabTile, vocab - first), scale_, &tile_max,
                                       w_.data() + first);
      if (!any) std::fill_n(w_.begin() + first, kVocabTile, 0);
      shift_[j] = any ? max_exponent - tile_max : 0;
      // Ids past the last sampleable one weigh nothing.
      if (first + kVocabTile > sampleable_) std::fill(w_.begin() + sampleable_, w_.end(), 0);
    }
  }

  // Everything behind the cut weighs nothing from now on.
  void keep(const Cut& cut) {
    for (int64_t i = 0; i < sampleable_; ++i) {
      if (!cut.keeps(logits_[i], i)) w_[i] = 0;
    }
  }

  Cut count_cut(int64_t k) {
    return prefix_cut(
        nullptr, [](int64_t) { return uint64_t{1}; }, [&](uint64_t) { return static_cast<uint64_t>(k); });
  }

  // Of the tokens that `list` keeps (null: all).
  Cut mass_cut(const Cut* list, double top_p) {
    const auto share = static_cast<uint64_t>(std::rint(top_p * 0x1p32));
    return prefix_cut(
        list, [&](int64_t i) { return shifted(w_[i], shift_[i / kVocabTile]); },
        [&](uint64_t all) {
          return static_cast<uint64_t>((static_cast<unsigned __int128>(share) * all + 0xFFFFFFFFU) >> 32);
        });
  }

  // The token for these bits, or -1 when nothing kept weighs anything.
  int32_t draw(uint64_t random_bits) const {
    std::vector<uint64_t>& mass = memory().mass;
    mass.assign(shift_.size(), 0);
    uint64_t all = 0;
    for (size_t j = 0; j < shift_.size(); ++j) {
      uint64_t sum = 0;
      for (int64_t i = 0; i < kVocabTile; ++i) sum += w_[j * kVocabTile + i];
      mass[j] = shifted(sum, shift_[j]);
      all += mass[j];
    }
    const auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits) * all) >> 64);
    uint64_t earlier = 0;
    for (size_t j = 0; j < shift_.size(); ++j) {
      if (earlier + mass[j] <= target) {
        earlier += mass[j];
        continue;
      }
      uint64_t running = 0;
      for (size_t i = j * kVocabTile;; ++i) {
        running += w_[i];
        if (earlier + shifted(running, shift_[j]) > target) return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

 private:
  static constexpr int kBuckets = 4096;
  static constexpr float kBucketsPerUnit = 64.0F;  // a bucket is 1/64 of a power of two wide

  struct Memory {
    std::vector<uint64_t> w, mass;
    std::vector<int64_t> shift;
    std::vector<uint16_t> bucket;
    std::vector<Candidate> candidates;
  };
  static Memory& memory() {
    thread_local Memory memory;
    return memory;
  }

  // Ascending with falling logits; every step of the expression is monotonic. Far below the maximum: the
  // last.
  uint16_t bucket_of(float logit) const {
    const float below = (static_cast<float>(max_exponent_) - logit * scale_) + 0.5F;
    const float place = below * kBucketsPerUnit;
    const float bounded = place > 0.0F ? (place < kBuckets - 1 ? place : kBuckets - 1) : 0.0F;
    return static_cast<uint16_t>(static_cast<int32_t>(bounded));
  }

  // The last token of the shortest prefix, in order, of the list whose masses reach wanted(sum of all).
  template <typename Mass, typename Wanted>
  Cut prefix_cut(const Cut* list, const Mass& mass, const Wanted& wanted) {
    std::vector<uint16_t>& bucket = memory().bucket;
    bucket.resize(sampleable_);
    for (int64_t i = 0; i < sampleable_; ++i) bucket[i] = bucket_of(logits_[i]);
    uint64_t sums[kBuckets] = {};
    bool used[kBuckets] = {};
    for (int64_t i = 0; i < sampleable_; ++i) {
      if (list != nullptr && !list->keeps(logits_[i], i)) continue;
      sums[bucket[i]] += mass(i);
      used[bucket[i]] = true;
    }
    uint64_t all = 0;
    for (const uint64_t sum : sums) all += sum;
    const uint64_t goal = wanted(all);
    uint64_t before_bucket = 0;
    int b = 0;
    while (!used[b] || before_bucket + sums[b] < goal) before_bucket += sums[b++];
    std::vector<Candidate>& candidates = memory().candidates;
    candidates.clear();
    for (int64_t i = 0; i < sampleable_; ++i) {
      if (bucket[i] != b || (list != nullptr && !list->keeps(logits_[i], i))) continue;
      candidates.push_back({logits_[i], static_cast<int32_t>(i), mass(i)});
    }
    return last_of_prefix(&candidates, goal - before_bucket);
  }

  const float* logits_;
  int64_t sampleable_;
  int32_t max_exponent_;
  float scale_;
  std::vector<uint64_t>& w_;     // [tiles * 128]
  std::vector<int64_t>& shift_;  // [tiles]: M - M_j
};

}  // namespace

int32_t sample_token(const VocabularyKernels& kernels, const float* logits, int64_t vocab,
                     const SamplingSettings& settings, const VocabularySums& sums, uint64_t random_bits) {
  if (settings.temperature == 0) return largest(logits, settings.sampleable);
  Row row(kernels, logits, vocab, settings, sums.max_exponent);
  const bool few = settings.top_k > 0 && settings.top_k < settings.sampleable;
  if (few || settings.top_p < 1) {
    Cut cut{};
    if (few) cut = row.count_cut(settings.top_k);
    if (settings.top_p < 1) cut = row.mass_cut(few ? &cut : nullptr, settings.top_p);
    row.keep(cut);
  }
  const int32_t token = row.draw(random_bits);
  return token >= 0 ? token : largest(logits, settings.sampleable);
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
