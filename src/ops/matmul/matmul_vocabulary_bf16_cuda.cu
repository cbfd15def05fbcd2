// SPDX-License-Identifier: Apache-2.0
// Logits of few tokens, and the sums of their tiles of 128 ids. x stays in shared memory, 64 tokens a block
// (more tokens: two blocks of a cluster, which share the copies of W), and W streams past it once. Tokens are
// the wgmma's M side, the ids of a tile its N side, so that four neighbouring threads hold a token's tile.
// Two warpgroups take the tiles of the block in turns: one multiplies while the other stores its logits and
// makes their sums.
#include <algorithm>

#include "core/check.h"
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "numerics/vocabulary_tile.cuh"
#include "ops/matmul/matmul_decode.h"
#include "ops/matmul/matmul_tensor_map.h"
#include "ops/matmul/matmul_wgmma.h"

namespace lockstep::ops {
namespace {

constexpr int kIds = numerics::kVocabTile;  // a tile
constexpr int kTokens = 64;                 // a block
constexpr int kMaxCluster = 2;              // blocks
constexpr int kDepth = 64;                  // k of a stage
constexpr int kMaxBlocks = 16;              // of k
constexpr int kMaxStages = 12;
constexpr int kBytesX = kTokens * 128;  // a block of k
constexpr int kStageBytes = kIds * 128;
constexpr int kRegisters = kIds / 2;
constexpr int kProducer = 256;  // the thread that copies, behind two warpgroups that multiply
constexpr int kThreads = kProducer + 32;
constexpr int kSharedBytes = 232448;
constexpr int kSlack = 2048;  // alignment and barriers
static_assert(kMaxBlocks * kBytesX + 2 * kStageBytes + kSlack <= kSharedBytes);

struct VocabularyArguments {
  int m = 0, n = 0;
  int blocks = 0;  // of k
  int stages = 0;
  int tiles = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
  float scale = 0;
  int32_t* max_exponent = nullptr;  // [m, tiles]
  uint64_t* sum = nullptr;          // null: no sums
};

struct Shared {
  uint32_t full, empty;  // barriers of the stages
  uint32_t x_full;       // of the blocks of x
  // Of each warpgroup: the other has seen all stages of its tile filled. A wait tells one round of the ring
  // from the next by a parity alone, so that none may begin a round early.
  uint32_t turn;
  uint32_t x, stages;
};
__device__ __forceinline__ Shared shared_of(uint32_t base, const VocabularyArguments& p) {
  Shared s;
  s.full = base;
  s.empty = s.full + 8 * kMaxStages;
  s.x_full = s.empty + 8 * kMaxStages;
  s.turn = s.x_full + 8 * kMaxBlocks;
  s.x = (base + kSlack / 2 + 1023U) & ~1023U;
  s.stages = s.x + p.blocks * kBytesX;
  return s;
}

// A place in the ring of stages, whose number depends on k.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void skip(int count, int stages) {
    for (stage += count; stage >= stages; stage -= stages) parity ^= 1;
  }
};

// Each block of the cluster copies its share of the tile's rows to all of them.
template <int kCluster>
__device__ __forceinline__ void copy_weights(const CUtensorMap& w, const Shared& s, int tile, int block,
                                             int stage, int rank) {
  constexpr int kRows = kIds / kCluster;
  const uint32_t barrier = s.full + 8 * stage;
  const uint32_t to = s.stages + stage * kStageBytes + rank * (kRows * 128);
  const int row = tile * kIds + rank * kRows;
  hopper::barrier_expect(barrier, kStageBytes);
  if constexpr (kCluster == 1) {
    hopper::copy_box(to, &w, block * kDepth, row, barrier);
  } else {
    hopper::copy_box_multicast(to, &w, block * kDepth, row, barrier, (1U << kCluster) - 1);
  }
}

// W does not depend on the launch before: its first copies start at once.
template <int kCluster>
__device__ __forceinline__ void produce(const CUtensorMap& w, const CUtensorMap& x,
                                        const VocabularyArguments& p, const Shared& s, int rank) {
  const int first = blockIdx.x / kCluster;
  const int step = gridDim.x / kCluster;
  int started = 0;
  for (int tile = first; tile < p.tiles && started < p.stages; tile += step) {
    for (int block = 0; block < p.blocks && started < p.stages; ++block, ++started)
      copy_weights<kCluster>(w, s, tile, block, started, rank);
  }
  cuda::wait_for_launch_before();
  for (int block = 0; block < p.blocks; ++block) {
    hopper::barrier_expect(s.x_full + 8 * block, kBytesX);
    hopper::copy_box(s.x + block * kBytesX, &x, block * kDepth, rank * kTokens, s.x_full + 8 * block);
  }
  Place place;
  int number = 0;
  for (int tile = first; tile < p.tiles; tile += step) {
    for (int block = 0; block < p.blocks; ++block, ++number, place.skip(1, p.stages)) {
      if (number < started) continue;
      hopper::barrier_wait(s.empty + 8 * place.stage, place.parity ^ 1);
      copy_weights<kCluster>(w, s, tile, block, place.stage, rank);
    }
  }
}

// The chain of tile `number` of this warpgroup.
template <int kCluster>
__device__ __forceinline__ void multiply(float (&acc)[kRegisters], const VocabularyArguments& p,
                                         const Shared& s, Place& place, int number, int group, int lane) {
  // Group 0 begins; its first wait is for the phase before the first.
  hopper::barrier_wait(s.turn + 8 * group, (number & 1) ^ (group == 0 ? 1 : 0));
  uint32_t before = 0;
  hopper::pin(acc);
  int block = 0;
  do {
    if (number == 0) hopper::barrier_wait(s.x_full + 8 * block, 0);
    hopper::barrier_wait(s.full + 8 * place.stage, place.parity);
    if (block + 1 == p.blocks && lane == 0) hopper::barrier_arrive(s.turn + 8 * (group ^ 1));
    __syncwarp();
    const uint64_t a = hopper::descriptor_k_major(s.x + block * kBytesX);
    const uint64_t b = hopper::descriptor_k_major(s.stages + place.stage * kStageBytes);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      hopper::wgmma<false, false>(acc, a + step * 2, b + step * 2, block != 0 || step != 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (block != 0) hopper::release_stage(before, kCluster, lane);
    before = s.empty + 8 * place.stage;
    place.skip(1, p.stages);
  } while (++block < p.blocks);
  hopper::wgmma_wait<0>();
  hopper::pin(acc);
  hopper::release_stage(before, kCluster, lane);
}

// Rows `row` and `row` + 8 of the tile: this thread has two of every eight columns.
__device__ __forceinline__ void store_logits(const float (&acc)[kRegisters], const VocabularyArguments& p,
                                             int tile, int row, int lane) {
  const int first = tile * kIds + 2 * (lane % 4);
  float* out = p.out + row * p.ld_out + first;
#pragma unroll
  for (int h = 0; h < 2; ++h, out += 8 * p.ld_out) {
    if (row + 8 * h < p.m) {
#pragma unroll
      for (int i = 0; i < kRegisters / 4; ++i) {
        const float a = acc[4 * i + 2 * h];
        const float b = acc[4 * i + 2 * h + 1];
        if (first + 8 * i + 1 < p.n) {
          *reinterpret_cast<float2*>(out + 8 * i) = make_float2(a, b);
        } else if (first + 8 * i < p.n) {
          out[8 * i] = a;
        }
      }
    }
  }
  __syncwarp();
}

// All threads of the warp.
__device__ __forceinline__ void store_sums(float (&acc)[kRegisters], const VocabularyArguments& p, int tile,
                                           int row, int lane) {
  if ((tile + 1) * kIds > p.n) {  // ids that do not exist
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      if (tile * kIds + i / 4 * 8 + 2 * (lane % 4) + i % 2 >= p.n) acc[i] = -__builtin_inff();
    }
  }
  numerics::TileSums sums[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float logits[kRegisters / 2];
#pragma unroll
    for (int i = 0; i < kRegisters / 2; ++i) logits[i] = acc[i / 2 * 4 + 2 * h + i % 2];
    sums[h] = numerics::vocabulary_tile<kRegisters / 2, 4, false>(logits, p.scale);
  }
  // All four threads of a row have its sums: one stores those of `row`, one those of `row` + 8.
  const bool second = lane % 4 == 1;
  const int token = row + (second ? 8 : 0);
  if (lane % 4 <= 1 && token < p.m) {
    const int64_t at = static_cast<int64_t>(token) * p.tiles + tile;
    p.max_exponent[at] = second ? sums[1].max_exponent : sums[0].max_exponent;
    p.sum[at] = second ? sums[1].sum : sums[0].sum;
  }
  __syncwarp();
}

template <int kCluster>
__device__ __forceinline__ void consume(const VocabularyArguments& p, const Shared& s, int rank) {
  const int group = threadIdx.x / 128;
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const int first = blockIdx.x / kCluster;
  const int step = gridDim.x / kCluster;
  const int row = rank * kTokens + warp * 16;
  cuda::wait_for_launch_before();
  Place place;
  if (group == 1) place.skip(p.blocks, p.stages);
  float acc[kRegisters];
  int number = 0;
  for (int tile = first + group * step; tile < p.tiles; tile += 2 * step, ++number) {
    multiply<kCluster>(acc, p, s, place, number, group, lane);
    place.skip(p.blocks, p.stages);  // those of the other warpgroup
    if (row >= p.m) continue;
    store_logits(acc, p, tile, row + lane / 4, lane);
    if (p.sum != nullptr) store_sums(acc, p, tile, row + lane / 4, lane);
  }
}

template <int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    vocabulary_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                      const __grid_constant__ VocabularyArguments p) {
  extern __shared__ uint8_t shared[];
  const Shared s = shared_of(hopper::shared_address(shared), p);
  const int rank = kCluster == 1 ? 0 : static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == kProducer) {
    for (int i = 0; i < p.stages; ++i) {
      hopper::barrier_init(s.full + 8 * i, 1);
      hopper::barrier_init(s.empty + 8 * i, 4 * kCluster);  // a thread of each warp of a warpgroup
    }
    for (int i = 0; i < p.blocks; ++i) hopper::barrier_init(s.x_full + 8 * i, 1);
    for (int i = 0; i < 2; ++i) hopper::barrier_init(s.turn + 8 * i, 4);
    hopper::barrier_init_fence();
    hopper::prefetch_map(&w);
    hopper::prefetch_map(&x);
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    hopper::cluster_sync();
  }
  cuda::let_next_launch_start();
  if (threadIdx.x < kProducer) {
    consume<kCluster>(p, s, rank);
  } else if (threadIdx.x == kProducer) {
    produce<kCluster>(w, x, p, s, rank);
  }
  __syncwarp();
  // No block of the cluster may leave while another still copies into it or arrives at its barriers.
  if constexpr (kCluster > 1) hopper::cluster_sync_relaxed();
}

template <int kCluster>
void launch(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w, int64_t m, int64_t n,
            int64_t k, const VocabularyArguments& p) {
  cuda::allow_shared<vocabulary_kernel<kCluster>>(kSharedBytes, "the vocabulary's product");
  const int clusters = std::min(p.tiles, std::max(1, context.sms() / kCluster));
  const CUtensorMap map_w = tensor_map(w, n, k, k, kIds / kCluster);
  const CUtensorMap map_x = tensor_map(x, m, k, ldx, kTokens);
  cuda::launch_early_clusters(context, "launching the vocabulary's product", vocabulary_kernel<kCluster>,
                              dim3(static_cast<unsigned>(clusters * kCluster)), kCluster, kThreads,
                              kSharedBytes, map_w, map_x, p);
}

bool fits(int64_t m, int64_t k, const MatmulForwardBf16& forward) {
  return m <= kMaxCluster * kTokens && k <= forward.chunk && k <= kMaxBlocks * kDepth &&
         forward.output == MatmulOutput::kFloat && forward.bias == nullptr;
}

}  // namespace

bool matmul_makes_tiles(int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward) {
  return n >= kMatmulTilesColumns && fits(m, k, forward);
}

void matmul_vocabulary_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                                 int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward) {
  LOCKSTEP_CHECK(fits(m, k, forward));
  VocabularyArguments p;
  p.m = static_cast<int>(m);
  p.n = static_cast<int>(n);
  p.blocks = static_cast<int>((k + kDepth - 1) / kDepth);
  p.stages = std::min(kMaxStages, (kSharedBytes - kSlack - p.blocks * kBytesX) / kStageBytes);
  p.tiles = static_cast<int>((n + kIds - 1) / kIds);
  p.out = static_cast<float*>(forward.out);
  p.ld_out = forward.ld_out;
  p.scale = forward.tile_scale;
  p.max_exponent = forward.tile_max_exponent;
  p.sum = forward.tile_sum;
  if (m <= kTokens) {
    launch<1>(context, x, ldx, w, m, n, k, p);
  } else {
    launch<2>(context, x, ldx, w, m, n, k, p);
  }
}

}  // namespace lockstep::ops
