// SPDX-License-Identifier: Apache-2.0
// Tasks: pieces of a row, so that a few rows of a large vocabulary use all threads. A tile's integers do not
// depend on the piece, and their sums on no order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "numerics/math.h"
#include "ops/vocabulary/vocabulary_row.h"

namespace lockstep::ops {
namespace {

using numerics::kVocabTile;

constexpr int64_t kTilesPerTask = 128;
constexpr int64_t kIdsPerTask = kTilesPerTask * kVocabTile;
constexpr int64_t kRowsAtOnce = 64;  // bounds the memory for tiles

VocabularySums add_tiles(const VocabularyTile* tiles, int64_t n) {
  VocabularySums sums;
  for (int64_t j = 0; j < n; ++j) {
    if (!tiles[j].any) continue;
    sums.max_exponent =
        sums.valid ? std::max(sums.max_exponent, tiles[j].max_exponent) : tiles[j].max_exponent;
    sums.valid = true;
  }
  for (int64_t j = 0; j < n; ++j) {
    if (!tiles[j].any) continue;
    const int64_t d = sums.max_exponent - tiles[j].max_exponent;
    const uint64_t w = shifted(tiles[j].sum, d);
    sums.sum += w;
    sums.entropy_sum += shifted(tiles[j].entropy_sum, d) + d * static_cast<int64_t>(w);
  }
  return sums;
}

// The target's own gradient, from its logits before they are overwritten.
float own_gradient(const VocabularyKernels& kernels, const float* logits, int64_t vocab,
                   const GradientFactors& f, const VocabularySums& sums, int64_t target) {
  const int64_t first = target / kVocabTile * kVocabTile;
  const int64_t count = std::min(kVocabTile, vocab - first);
  uint64_t w[kVocabTile];
  int32_t max_exponent = 0;
  uint64_t mass = 0;
  if (kernels.weights(logits + first, count, f.scale, &max_exponent, w))
    mass = shifted(w[target - first], sums.max_exponent - max_exponent);
  return target_gradient(f.c, sums.sum, mass);
}

// fma(-ce, p*(log p + H), own) for the target.
float with_entropy(const GradientFactors& f, float logit, float own) {
  const float s = logit * f.scale;
  const float n = numerics::round_even(s);
  if (!f.entropic || !(n - f.max >= -126.0F)) return own;
  const float a = numerics::scale_by_pow2(numerics::exp2_fraction(s - n), static_cast<int>(n - f.max));
  const float p = a * f.inverse_sum;
  if (p == 0) return own;
  const float log_p = f.ln2 * ((s - f.max) - f.log2_sum);
  return std::fma(-f.ce, p * (log_p + f.entropy), own);
}

}  // namespace

VocabularyKernels vocabulary_kernels(cpu::Isa isa) {
  VocabularyKernels kernels = vocabulary_kernels_portable();
  if (isa == cpu::Isa::kAvx2) kernels = vocabulary_kernels_avx2();
  if (isa == cpu::Isa::kAvx512) kernels = vocabulary_kernels_avx512();
  LOCKSTEP_CHECK(kernels.tiles != nullptr, "vocabulary was not compiled for this instruction set");
  return kernels;
}

void vocabulary_sums_cpu(const cpu::Context& context, const float* logits, int64_t ld, int64_t rows,
                         int64_t vocab, float scale, VocabularySums* sums) {
  const VocabularyKernels kernels = vocabulary_kernels(context.isa());
  const int64_t tiles_per_row = (vocab + kVocabTile - 1) / kVocabTile;
  const int64_t pieces = (tiles_per_row + kTilesPerTask - 1) / kTilesPerTask;
  std::vector<VocabularyTile> tiles(std::min(rows, kRowsAtOnce) * tiles_per_row);
  std::vector<uint8_t> ok(std::min(rows, kRowsAtOnce) * pieces);
  for (int64_t first_row = 0; first_row < rows; first_row += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - first_row);
    context.parallel_for(count * pieces, [&](int64_t task) {
      const int64_t row = task / pieces;
      const int64_t first = task % pieces * kIdsPerTask;
      ok[task] = kernels.tiles(logits + (first_row + row) * ld + first, std::min(kIdsPerTask, vocab - first),
                               scale, tiles.data() + row * tiles_per_row + first / kVocabTile);
    });
    for (int64_t row = 0; row < count; ++row) {
      VocabularySums* out = sums + first_row + row;
      *out = add_tiles(tiles.data() + row * tiles_per_row, tiles_per_row);
      const auto* row_ok = ok.data() + row * pieces;
      if (std::find(row_ok, row_ok + pieces, 0) != row_ok + pieces) *out = {};
    }
  }
}

void vocabulary_gradient_cpu(const cpu::Context& context, float* logits, int64_t ld, int64_t rows,
                             int64_t vocab, float scale, float inverse_temperature,
                             const VocabularySums* sums, const VocabularyGradientRow* grads) {
  const VocabularyKernels kernels = vocabulary_kernels(context.isa());
  const int64_t pieces = (vocab + kIdsPerTask - 1) / kIdsPerTask;
  context.parallel_for(rows * pieces, [&](int64_t task) {
    const int64_t row = task / pieces;
    const int64_t first = task % pieces * kIdsPerTask;
    const int64_t count = std::min(kIdsPerTask, vocab - first);
    float* x = logits + row * ld;
    if (grads[row].dlogp == 0 && grads[row].dent == 0) {
      std::fill(x + first, x + first + count, 0.0F);
      return;
    }
    const GradientFactors f = gradient_factors(scale, inverse_temperature, sums[row], grads[row]);
    const int64_t target = grads[row].target;
    const bool here = target >= first && target < first + count;
    float own = 0.0F;
    if (here) own = with_entropy(f, x[target], own_gradient(kernels, x, vocab, f, sums[row], target));
    kernels.gradient(x + first, count, f);
    if (here) x[target] = own;
  });
}

}  // namespace lockstep::ops
