// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "numerics/constants.h"
#include "numerics/math.h"
#include "ops/vocabulary/vocabulary.h"
#include "ops/vocabulary/vocabulary_row.h"

namespace lockstep::ops {
namespace {

using numerics::kVocabTile;

constexpr int32_t kNone = std::numeric_limits<int32_t>::min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 2^(s - max) before rounding to an integer; +0 far below.
float weight(float s, int32_t max, int floor) {
  if (s == -kInfinity) return 0.0F;
  const float n = numerics::round_even(s);
  const int e = static_cast<int>(n) - max;
  return e < floor ? 0.0F : numerics::scale_by_pow2(numerics::exp2_fraction(s - n), e);
}
uint64_t fixed_weight(float s, int32_t max) {
  return static_cast<uint64_t>(std::rint(static_cast<double>(weight(s, max, -60)) * 0x1p44));
}
int64_t entropy_term(float s, int32_t max) {
  if (fixed_weight(s, max) == 0) return 0;
  const float distance = static_cast<float>(max) - s;
  return static_cast<int64_t>(
      std::rint(static_cast<double>(weight(s, max, -60)) * static_cast<double>(distance) * 0x1p44));
}

// The row cut into tiles. valid is false as in VocabularySums.
struct Row {
  bool valid = true;
  int32_t max = 0;              // M
  std::vector<float> s;         // scaled logits
  std::vector<int32_t> max_of;  // M_j of the tile of each id (M where the tile is skipped)

  Row(const float* logits, int64_t vocab, float scale) : s(vocab), max_of(vocab) {
    bool any = false;
    for (int64_t first = 0; first < vocab; first += kVocabTile) {
      const int64_t end = std::min(first + kVocabTile, vocab);
      bool tile_any = false;
      int32_t tile_max = 0;
      for (int64_t i = first; i < end; ++i) {
        s[i] = logits[i] * scale;
        if (logits[i] == -kInfinity) continue;
        if (!(std::abs(s[i]) < numerics::kMaxScore)) {
          valid = false;
          return;
        }
        const int n = static_cast<int>(numerics::round_even(s[i]));
        tile_max = tile_any ? std::max(tile_max, n) : n;
        tile_any = true;
      }
      std::fill(max_of.begin() + first, max_of.begin() + end, tile_any ? tile_max : kNone);
      if (tile_any) max = any ? std::max(max, tile_max) : tile_max;
      any |= tile_any;
    }
    valid = any;
    std::replace(max_of.begin(), max_of.end(), kNone, max);
  }
  uint64_t w(int64_t i) const { return fixed_weight(s[i], max_of[i]); }
  uint64_t mass(int64_t i) const { return shifted(w(i), max - max_of[i]); }  // m_i
};

// Largest logit first, then smallest id.
std::vector<int32_t> sorted_ids(const float* logits, int64_t sampleable) {
  std::vector<int32_t> ids(sampleable);
  for (int64_t i = 0; i < sampleable; ++i) ids[i] = static_cast<int32_t>(i);
  std::sort(ids.begin(), ids.end(),
            [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  return ids;
}

}  // namespace

void vocabulary_sums_ref(const float* logits, int64_t ld, int64_t rows, int64_t vocab, float scale,
                         VocabularySums* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(logits + r * ld, vocab, scale);
    sums[r] = {};
    if (!row.valid) continue;
    sums[r].valid = true;
    sums[r].max_exponent = row.max;
    for (int64_t first = 0; first < vocab; first += kVocabTile) {
      const int64_t d = row.max - row.max_of[first];
      uint64_t w = 0;
      int64_t a = 0;
      for (int64_t i = first; i < std::min(first + kVocabTile, vocab); ++i) {
        w += row.w(i);
        a += entropy_term(row.s[i], row.max_of[i]);
      }
      sums[r].sum += shifted(w, d);
      sums[r].entropy_sum += shifted(a, d) + d * static_cast<int64_t>(shifted(w, d));
    }
  }
}

void vocabulary_gradient_ref(float* logits, int64_t ld, int64_t rows, int64_t vocab, float scale,
                             float inverse_temperature, const VocabularySums* sums,
                             const VocabularyGradientRow* grads) {
  for (int64_t r = 0; r < rows; ++r) {
    float* g = logits + r * ld;
    if (grads[r].dlogp == 0 && grads[r].dent == 0) {
      std::fill(g, g + vocab, 0.0F);
      continue;
    }
    const Row row(g, vocab, scale);
    const GradientFactors f = gradient_factors(scale, inverse_temperature, sums[r], grads[r]);
    for (int64_t i = 0; i < vocab; ++i) {
      const float p = weight(row.s[i], row.max, -126) * f.inverse_sum;
      g[i] = i == grads[r].target ? target_gradient(f.c, sums[r].sum, row.mass(i)) : -(f.c * p);
      if (!f.entropic || p == 0) continue;
      const float log_p = f.ln2 * ((row.s[i] - f.max) - f.log2_sum);
      g[i] = std::fma(-f.ce, p * (log_p + f.entropy), g[i]);
    }
  }
}

int32_t sample_token_ref(const float* logits, int64_t vocab, const SamplingSettings& settings,
                         uint64_t random_bits) {
  std::vector<int32_t> list = sorted_ids(logits, settings.sampleable);
  if (settings.temperature == 0) return list[0];
  const Row row(logits, vocab, vocabulary_scale(settings.temperature));
  if (settings.top_k > 0 && settings.top_k < static_cast<int64_t>(list.size())) list.resize(settings.top_k);
  if (settings.top_p < 1) {
    const auto share = static_cast<uint64_t>(std::rint(settings.top_p * 0x1p32));
    uint64_t all = 0;
    for (const int32_t id : list) all += row.mass(id);
    const auto wanted =
        static_cast<uint64_t>((static_cast<unsigned __int128>(share) * all + 0xFFFFFFFFU) >> 32);
    uint64_t sum = row.mass(list[0]);
    size_t kept = 1;
    while (sum < wanted) sum += row.mass(list[kept++]);
    list.resize(kept);
  }
  std::vector<bool> keep(vocab);
  for (const int32_t id : list) keep[id] = true;

  // Running sum C(i): earlier tiles, then this tile up to i.
  std::vector<uint64_t> running(vocab);
  uint64_t earlier = 0;
  for (int64_t first = 0; first < vocab; first += kVocabTile) {
    uint64_t tile = 0;
    for (int64_t i = first; i < std::min(first + kVocabTile, vocab); ++i) {
      if (keep[i]) tile += row.w(i);
      running[i] = earlier + shifted(tile, row.max - row.max_of[i]);
    }
    earlier += shifted(tile, row.max - row.max_of[first]);
  }
  const auto target = static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits) * earlier) >> 64);
  for (int64_t i = 0; i < vocab; ++i) {
    if (keep[i] && running[i] > target) return static_cast<int32_t>(i);
  }
  return list[0];
}

}  // namespace lockstep::ops
