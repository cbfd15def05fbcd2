// SPDX-License-Identifier: Apache-2.0
// Gradient of the logits. Eight threads share a tile, as in vocabulary_cuda.cu. A row's factors, binary64 and
// a logarithm, are computed once, by a kernel of their own: in every thread block they took a third of its
// time.
#include "device/cuda/launch.h"
#include "numerics/element.cuh"
#include "ops/vocabulary/vocabulary_block.cuh"
#include "ops/vocabulary/vocabulary_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;

constexpr int kThreads = 256;
constexpr int kGroup = 8;
constexpr int kCount = kVocabularyTile / kGroup;
constexpr int kColumns = kThreads / kGroup * kVocabularyTile;  // of a block

// Column of a thread's value k in its tile.
__device__ __forceinline__ int column_of(int lane, int k) {
  return k / 4 * 4 * kGroup + lane * 4 + k % 4;
}

__device__ __forceinline__ float gradient_of(float logit, int max_bits, const GradientFactors& f,
                                             bool is_target, float of_target) {
  const float s = logit * f.scale;
  float fraction;
  const int e = tile_round(s, &fraction) - max_bits;
  const float y = e < -126 ? 0.0F : numerics::exp2_fraction(fraction) * numerics::pow2f(e);
  const float p = y * f.inverse_sum;
  float g = is_target ? of_target : -(f.c * p);
  if (f.entropic && p != 0) {
    const float log_p = f.ln2 * ((s - f.max) - f.log2_sum);
    g = fmaf(-f.ce, p * (log_p + f.entropy), g);
  }
  return g;
}

__global__ void __launch_bounds__(kThreads)
    row_factors(int64_t rows, float scale, float inverse_temperature, const VocabularySums* __restrict__ sums,
                const VocabularyGradientRow* __restrict__ grads, GradientFactors* __restrict__ factors) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < rows) factors[row] = gradient_factors(scale, inverse_temperature, sums[row], grads[row]);
}

// out may be logits; columns [vocab, width) become +0.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    logits_gradient(const float* logits, int64_t ld, int vocab, bool aligned, float scale,
                    const GradientFactors* __restrict__ factors, const VocabularySums* __restrict__ sums,
                    const VocabularyGradientRow* __restrict__ grads, T* out, int64_t ldo, int width) {
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const int tile = static_cast<int>(blockIdx.y * (kThreads / kGroup) + threadIdx.x / kGroup);
  const int first = tile * kVocabularyTile;
  const bool whole = aligned && first + kVocabularyTile <= vocab;
  logits += row * ld;
  out += row * ldo;
  const VocabularyGradientRow grad = grads[row];
  const GradientFactors f = factors[row];
  const int32_t row_max = sums[row].max_exponent;
  float x[kCount];
  if (whole) {
#pragma unroll
    for (int k = 0; k < kCount; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(logits + first + column_of(lane, k));
      x[k] = four.x;
      x[k + 1] = four.y;
      x[k + 2] = four.z;
      x[k + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const int i = first + column_of(lane, k);
      x[k] = i < vocab ? logits[i] : -__builtin_inff();
    }
  }
  const int max_bits = row_max + kRoundEvenBits;
  const bool zero = grad.dlogp == 0 && grad.dent == 0;

  // The target's own term needs M_j of its tile. All four tiles of the warp take part.
  float of_target = 0;
  const int in_tile = grad.target - first;
  const int of_warp = grad.target / kVocabularyTile - (tile & ~3);
  if (of_warp >= 0 && of_warp < 4) {
    const TileSums t = vocabulary_tile<kCount, kGroup, false>(x, scale);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (column_of(lane, k) != in_tile) continue;
      const uint64_t mass = t.max_exponent == kTileEmpty ? 0
                                                         : shifted(tile_weight(x[k] * scale, t.max_exponent),
                                                                   row_max - t.max_exponent);
      of_target = target_gradient(f.c, sums[row].sum, mass);
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; k += 4) {
    float g[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const int column = column_of(lane, k + u);
      g[u] = zero ? 0.0F : gradient_of(x[k + u], max_bits, f, column == in_tile, of_target);
      if (first + column >= vocab) g[u] = 0.0F;
    }
    const int i = first + column_of(lane, k);
    const auto packed = numerics::pack<T>(g);
    if (whole) {
      numerics::store_pack<true>(out + i, 4, packed);
    } else {
      numerics::store_pack<false>(out + i, width - i, packed);
    }
  }
}

template <typename T>
void gradient(const cuda::Context& context, const float* logits, int64_t ld, int64_t rows, int64_t vocab,
              float scale, float inverse_temperature, const VocabularySums* sums,
              const VocabularyGradientRow* grads, T* out, int64_t ldo, int64_t width) {
  if (rows == 0) return;
  const bool aligned = numerics::packs_fit<4>(logits, ld) && numerics::packs_fit<4>(out, ldo);
  auto* factors =
      static_cast<GradientFactors*>(context.scratch(rows * static_cast<int64_t>(sizeof(GradientFactors))));
  row_factors<<<cuda::blocks_for(rows, kThreads), kThreads, 0, context.stream()>>>(
      rows, scale, inverse_temperature, sums, grads, factors);
  const dim3 grid(static_cast<unsigned>(rows), cuda::blocks_for(width, kColumns));
  logits_gradient<T><<<grid, kThreads, 0, context.stream()>>>(logits, ld, static_cast<int>(vocab), aligned,
                                                              scale, factors, sums, grads, out, ldo,
                                                              static_cast<int>(width));
  cuda::check_launch("gradient of the logits");
}

}  // namespace

void vocabulary_gradient_fp32_cuda(const cuda::Context& context, float* logits, int64_t ld, int64_t rows,
                                   int64_t vocab, float scale, float inverse_temperature,
                                   const VocabularySums* sums, const VocabularyGradientRow* grads) {
  gradient<float>(context, logits, ld, rows, vocab, scale, inverse_temperature, sums, grads, logits, ld,
                  vocab);
}
void vocabulary_gradient_bf16_cuda(const cuda::Context& context, const float* logits, int64_t ld,
                                   int64_t rows, int64_t vocab, float scale, float inverse_temperature,
                                   const VocabularySums* sums, const VocabularyGradientRow* grads, Bf16* out,
                                   int64_t ldo) {
  gradient<Bf16>(context, logits, ld, rows, vocab, scale, inverse_temperature, sums, grads, out, ldo, ldo);
}

}  // namespace lockstep::ops
