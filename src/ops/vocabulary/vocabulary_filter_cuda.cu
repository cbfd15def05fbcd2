// SPDX-License-Identifier: Apache-2.0
// Sampling with top-k and top-p, a block a row, without a sort. Both keep a prefix of the order whose count,
// or mass, reaches a goal: a histogram over the row finds the bin in which that happens, and the few ids of
// that bin are ranked against each other; a bin that holds too many is cut again by digits of the order's
// key.
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/vocabulary/vocabulary_draw.cuh"
#include "ops/vocabulary/vocabulary_filter.h"

namespace lockstep::ops {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 4096;
constexpr int kBinBits = 12;
constexpr int kBinsPerThread = kBins / kThreads;
constexpr float kBinsPerUnit = 64.0F;  // a bin of the first histogram is 1/64 of a power of two wide
constexpr int kCapacity = 2048;        // ids ranked at once
constexpr int kMaxTiles = static_cast<int>(numerics::kMaxVocab / numerics::kVocabTile);

struct Histogram {
  uint32_t count[kBins];
  uint32_t low[kBins], high[kBins];  // halves of the mass
};
struct Memory {
  union {
    Histogram histogram;
    uint64_t masses[kMaxTiles];
  };
  uint64_t keys[kCapacity];
  uint64_t measures[kCapacity];
  BlockMemory block;
  Drawn drawn;
  uint64_t bin_before;
  uint32_t bin_count;
  uint32_t listed;
};

// Calls f(id, logit, M_j) for every id that may be drawn.
template <typename F>
__device__ __forceinline__ void for_row(const SampledRow& row, const F& f) {
#pragma unroll 2
  for (int j = static_cast<int>(threadIdx.x / 32); j * kVocabularyTile < row.sampleable; j += kWarps) {
    const int32_t max = row.tiles.max_exponent[j];
    for_tile(row, j, [&](int id, float logit) { f(id, logit, max); });
  }
}

__device__ __forceinline__ uint64_t mass_of(const SampledRow& row, float logit, int32_t tile_max) {
  if (tile_max == kTileEmpty) return 0;
  return shifted(tile_weight(logit * row.scale, tile_max), row.sums.max_exponent - tile_max);
}

// Ascending with falling logits: every step is monotonic. Far below the maximum: the last.
__device__ __forceinline__ int first_bin(const SampledRow& row, float logit) {
  const float below = (static_cast<float>(row.sums.max_exponent) - logit * row.scale) + 0.5F;
  const float place = below * kBinsPerUnit;
  return static_cast<int>(fminf(fmaxf(place, 0.0F), static_cast<float>(kBins - 1)));
}

// Which ids a histogram is about, and their bins.
struct Level {
  int bin = -1;               // of the first histogram; -1: this is the first
  int shift = kOrderKeyBits;  // of the digits fixed so far
  int next_shift = kOrderKeyBits;
  uint64_t prefix = 0;

  __device__ __forceinline__ int bin_of(const SampledRow& row, float logit, uint64_t key) const {
    const int first = first_bin(row, logit);
    if (bin < 0) return first;
    if (first != bin || (key >> shift) != prefix) return -1;
    return static_cast<int>((key >> next_shift) & ((uint64_t{1} << (shift - next_shift)) - 1));
  }
  __device__ __forceinline__ void descend(int chosen) {
    if (bin < 0) {
      bin = chosen;
    } else {
      prefix = (prefix << (shift - next_shift)) | static_cast<uint64_t>(chosen);
      shift = next_shift;
    }
    next_shift = shift > kBinBits ? shift - kBinBits : 0;
  }
};

__device__ __forceinline__ void add_mass(Histogram* h, int bin, uint64_t mass) {
  const auto low = static_cast<uint32_t>(mass);
  const uint32_t before = low != 0 ? atomicAdd(&h->low[bin], low) : 0;
  const uint32_t high = static_cast<uint32_t>(mass >> 32) + (before + low < before ? 1U : 0U);
  if (high != 0) atomicAdd(&h->high[bin], high);
}

// Key of the last id of the shortest prefix of the ids with keys <= list whose measure (1, or kMass: m_i)
// reaches wanted(measure of all); at least one id.
template <bool kMass, typename Wanted>
__device__ uint64_t prefix_cut(const SampledRow& row, uint64_t list, const Wanted& wanted, Memory* memory) {
  Histogram* h = &memory->histogram;
  Level level;
  uint64_t left = 0;  // of the goal, before the ids of `level`
  for (;;) {
    __syncthreads();
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) {
      h->count[b] = 0;
      h->low[b] = 0;
      h->high[b] = 0;
    }
    __syncthreads();
    for_row(row, [&](int id, float logit, int32_t tile_max) {
      const uint64_t key = order_key(logit, id);
      if (key > list) return;
      const int bin = level.bin_of(row, logit, key);
      if (bin < 0) return;
      atomicAdd(&h->count[bin], 1U);
      if constexpr (kMass) add_mass(h, bin, mass_of(row, logit, tile_max));
    });
    __syncthreads();
    const auto measure = [&](int b) {
      return kMass ? h->low[b] | (static_cast<uint64_t>(h->high[b]) << 32) : uint64_t{h->count[b]};
    };
    const int begin = static_cast<int>(threadIdx.x) * kBinsPerThread;
    uint64_t mine = 0;
    for (int b = begin; b < begin + kBinsPerThread; ++b) mine += measure(b);
    uint64_t all = 0;
    uint64_t before = block_sum_before(mine, &memory->block, &all);
    if (level.bin < 0) left = wanted(all);
    int chosen = kBins;
    for (int b = begin; b < begin + kBinsPerThread; ++b) {
      if (h->count[b] != 0 && before + measure(b) >= left) {
        chosen = b;
        break;
      }
      before += measure(b);
    }
    const int found = block_min(chosen, &memory->block);
    if (found == chosen && chosen < kBins) {
      memory->bin_before = before;
      memory->bin_count = h->count[found];
      memory->listed = 0;
    }
    __syncthreads();
    left -= memory->bin_before;
    if (memory->bin_count > kCapacity) {
      level.descend(found);
      continue;
    }
    for_row(row, [&](int id, float logit, int32_t tile_max) {
      const uint64_t key = order_key(logit, id);
      if (key > list || level.bin_of(row, logit, key) != found) return;
      const uint32_t at = atomicAdd(&memory->listed, 1U);
      memory->keys[at] = key;
      memory->measures[at] = kMass ? mass_of(row, logit, tile_max) : 1;
    });
    __syncthreads();
    const auto n = static_cast<int>(memory->listed);
    uint64_t cut = ~uint64_t{0};
    for (int e = static_cast<int>(threadIdx.x); e < n; e += kThreads) {
      const uint64_t key = memory->keys[e];
      uint64_t sum = 0;
      for (int i = 0; i < n; ++i) sum += memory->keys[i] <= key ? memory->measures[i] : 0;
      if (sum >= left && key < cut) cut = key;
    }
    return block_min(cut, &memory->block);
  }
}

// ceil(share * all / 2^32), share <= 2^32.
__device__ __forceinline__ uint64_t share_of(uint64_t share, uint64_t all) {
  const uint64_t low = share * all;
  const uint64_t high = __umul64hi(share, all);
  const uint64_t rounded = low + 0xFFFFFFFFU;
  return ((high + (rounded < low ? 1 : 0)) << 32) | (rounded >> 32);
}

__global__ void __launch_bounds__(kThreads) draw_filtered(SampleArguments a) {
  extern __shared__ uint4 dynamic[];
  auto* memory = reinterpret_cast<Memory*>(dynamic);
  cuda::wait_for_launch_before();
  cuda::let_next_launch_start();
  const int64_t row_number = blockIdx.x;
  SampledRow row = {a.logits + row_number * a.ld,
                    a.aligned,
                    a.vocab,
                    a.sampleable,
                    a.scale,
                    row_tiles(a.tiles, row_number, a.n_tiles),
                    {}};
  row.tiles.entropy_sum = nullptr;
  row.sums = row_sums(row.tiles, &memory->block, nullptr);
  if (!row.sums.valid) {
    if (threadIdx.x != 0) return;
    cuda::report(a.fault, static_cast<unsigned long long>(row_number));
    a.tokens[row_number] = 0;
    a.log_probs[row_number] = 0.0F;
    return;
  }
  uint64_t cut = ~uint64_t{0};
  if (a.top_k > 0) {
    const auto count = static_cast<uint64_t>(a.top_k);
    cut = prefix_cut<false>(
        row, cut, [=](uint64_t) { return count; }, memory);
  }
  if (a.has_top_p) {
    const uint64_t share = a.share;
    cut = prefix_cut<true>(
        row, cut, [=](uint64_t all) { return share_of(share, all); }, memory);
  }
  const auto keep = [=](int id, float logit) { return order_key(logit, id) <= cut; };
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x / 32); j < a.n_tiles; j += kWarps) {
    const uint64_t sum = j * kVocabularyTile < a.sampleable ? kept_weight(row, j, keep) : 0;
    const int64_t d = sum != 0 ? row.sums.max_exponent - row.tiles.max_exponent[j] : 0;
    if ((threadIdx.x & 31) == 0) memory->masses[j] = shifted(sum, d);
  }
  __syncthreads();
  int token = draw_token(row, memory->masses, bits_of_draw(a.draws[row_number]), keep, &memory->block,
                         &memory->drawn);
  if (token < 0) token = first_in_order(row, &memory->block);
  if (threadIdx.x == 0) {
    a.tokens[row_number] = token;
    a.log_probs[row_number] = vocabulary_log_prob_of(row.logits[token], a.scale, row.sums);
  }
}

}  // namespace

void sample_filtered_cuda(const cuda::Context& context, int64_t rows, const SampleArguments& arguments) {
  cuda::check(
      cudaFuncSetAttribute(draw_filtered, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory)),
      "giving sampling its shared memory");
  cuda::launch_early(context, "sampling with filters", draw_filtered, static_cast<unsigned>(rows), kThreads,
                     sizeof(Memory), arguments);
}

}  // namespace lockstep::ops
