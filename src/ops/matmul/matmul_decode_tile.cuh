// SPDX-License-Identifier: Apache-2.0
// Products of few tokens, one tile a block of the grid. Tokens are the wgmma's M side, 64 or 128 a tile, rows
// of W its N side: tiles as square as one round of all multiprocessors allows, because what bounds a product
// of this size is how often the L2 is read. Blocks of a cluster share their copies of W, or take one chunk of
// k each: then each adds the chunk sums, ascending, of some tokens, which the others copy into its shared
// memory. Where RoPE or SwiGLU needs pairs of columns, the copy of W interleaves them, so that one thread
// holds both of a pair.
#pragma once

#include <algorithm>

#include "device/cuda/launch_early.h"
#include "ops/matmul/matmul_decode_epilogue.h"
#include "ops/matmul/matmul_decode_swiglu.h"
#include "ops/matmul/matmul_wgmma_narrow.h"

namespace lockstep::ops {

inline constexpr int kDecodeDepth = 64;     // k of a stage
inline constexpr int kDecodeMaxChunks = 8;  // blocks of a cluster

struct TileArguments {
  int blocks = 0;        // of k
  int chunk_blocks = 0;  // of k, a block of the cluster
  int chunks = 1;
  int share_w = 1;  // blocks of a cluster below one another, which share the copies of W; a power of two
  int columns = 0;  // of tiles
  int tokens_copied = 0;  // rows of x a stage
  int half = 0;           // from a column to the other of its pair; 0: no pairs
  EpilogueArguments epilogue;
};

// kOutput: kResidual, kRope or kSwiglu. kSplit: one chunk of several a block, not with kSwiglu. kPerSm: 2
// leaves room for a block of the next launch, which then starts to copy early; 1 copies further ahead.
template <int kGroups_, int kColumns_, MatmulOutput kOutput_, bool kSplit_, int kPerSm_>
struct DecodeTile {
  static constexpr int kGroups = kGroups_;  // warpgroups that multiply, 64 tokens each
  static constexpr int kColumns = kColumns_;
  static constexpr MatmulOutput kOutput = kOutput_;
  static constexpr bool kSplit = kSplit_;
  static constexpr int kPerSm = kPerSm_;
  static constexpr bool kPaired = kOutput != MatmulOutput::kResidual;
  static constexpr int kTokens = 64 * kGroups;
  static constexpr int kRegisters = kColumns / 2;
  static constexpr int kConsumers = 128 * kGroups;
  static constexpr int kThreads = kConsumers + 32;  // a warp more copies
  static constexpr int kBytesX = kTokens * 128;
  static constexpr int kBytesW = kColumns * 128;
  static constexpr int kStageBytes = kBytesX + kBytesW;
  // Stride of the turned tile, in words: stores of a warp meet every bank once.
  static constexpr int kStride = kOutput == MatmulOutput::kSwiglu
                                     ? kColumns / 2 + (kColumns / 2 % 8 == 0 ? 4 : 0)
                                     : kColumns + (kColumns % 16 == 0 ? 8 : 0);
  static constexpr int kItems = kColumns / 8;  // of eight columns, a token
  static constexpr int kReceivedBytes = kSplit ? (kTokens + kDecodeMaxChunks) * kStride * 4 : 0;
  static constexpr int kSpace = (kPerSm == 1 ? 224 << 10 : 111 << 10) - kReceivedBytes;
  static constexpr int kStages = std::min(14, kSpace / kStageBytes);
  static constexpr int kTileBytes = std::max(kStages * kStageBytes, kTokens* kStride * 4);
  static constexpr int kSharedBytes = 1024 + kTileBytes + kReceivedBytes + 16 * kStages + 8;
  static_assert(kSharedBytes <= 232448 && kStages > 1);
};

// Which part of the product this block has.
struct Place {
  int chunk, row, column;  // numbers of chunk and tile
  int turn;                // copies W of the blocks of k whose number ends so
};
__device__ __forceinline__ Place place_of(const TileArguments& p, bool split) {
  const int cluster = p.share_w * p.chunks;
  const int rank = cluster == 1 ? 0 : static_cast<int>(hopper::cluster_rank());
  const int number = static_cast<int>(blockIdx.x) / cluster;
  Place at;
  at.chunk = split ? rank : 0;
  at.turn = split ? 0 : rank;
  at.row = number / p.columns * p.share_w + at.turn;
  at.column = number % p.columns;
  return at;
}

// W as [heads][half][2][k], or [1][rows][1][k] without pairs: coordinates of the tile's first row.
struct WeightBox {
  int row, head;
};
template <class T>
__device__ __forceinline__ WeightBox weight_box(const TileArguments& p, int tile) {
  if (!T::kPaired) return {tile * T::kColumns, 0};
  const int pair = tile * (T::kColumns / 2);
  const int head = pair / p.half;
  return {pair - head * p.half, head};
}
__device__ __forceinline__ void copy_weights(uint32_t to, const CUtensorMap& map, int k, const WeightBox& box,
                                             uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, 0, "
      "%3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(k), "r"(box.row), "r"(box.head), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_weights_multicast(uint32_t to, const CUtensorMap& map, int k,
                                                       const WeightBox& box, uint32_t barrier, int blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, 0, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(k), "r"(box.row), "r"(box.head), "r"(barrier), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}
// Own shared memory to that of block `rank`; the bytes complete on its `barrier`.
__device__ __forceinline__ void copy_to_block(uint32_t to, uint32_t from, int bytes, uint32_t barrier,
                                              int rank) {
  asm volatile(
      "{\n.reg .b32 to, barrier;\n"
      "mapa.shared::cluster.u32 to, %0, %4;\n"
      "mapa.shared::cluster.u32 barrier, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%1], %2, "
      "[barrier];\n}" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier), "r"(rank)
      : "memory");
}

// The thread that copies.
template <class T>
struct Producer {
  const CUtensorMap& w;
  const CUtensorMap& x;
  const TileArguments& p;
  const Place& at;
  uint32_t stages, full, empty;
  int first, count;  // blocks of k
  WeightBox box;

  __device__ __forceinline__ void copy_w(int block, uint32_t stage) const {
    const uint32_t to = stages + stage * T::kStageBytes + T::kBytesX;
    const uint32_t barrier = full + stage * 8;
    hopper::barrier_expect(barrier, T::kBytesW + p.tokens_copied * 128);
    if (p.share_w == 1) {
      copy_weights(to, w, (first + block) * kDecodeDepth, box, barrier);
    } else if ((block & (p.share_w - 1)) == at.turn) {
      copy_weights_multicast(to, w, (first + block) * kDecodeDepth, box, barrier, (1 << p.share_w) - 1);
    }
  }
  __device__ __forceinline__ void copy_x(int block, uint32_t stage) const {
    hopper::copy_box(stages + stage * T::kStageBytes, &x, (first + block) * kDecodeDepth, at.row * T::kTokens,
                     full + stage * 8);
  }
  // Fills the ring. W does not depend on the launch before: its copies start at once.
  __device__ __forceinline__ void start() const {
    const int early = min(T::kStages, count);
    for (int block = 0; block < early; ++block) copy_w(block, block);
    cuda::wait_for_launch_before();
    for (int block = 0; block < early; ++block) copy_x(block, block);
  }
  // Once all blocks of the cluster have released the stage; `parity` of the block before in it.
  __device__ __forceinline__ void refill(int block, uint32_t stage, uint32_t parity) const {
    hopper::barrier_wait(empty + stage * 8, parity);
    copy_w(block, stage);
    copy_x(block, stage);
  }
};

// One chunk's chain. A stage that is copied into once more is released to all blocks that copy into it.
template <class T>
__device__ __forceinline__ void tile_chain(float (&acc)[T::kRegisters], const Producer<T>& producer,
                                           int thread) {
  const TileArguments& p = producer.p;
  const int count = producer.count;
  const int lane = thread % 32;
  const auto release = [&](int block, const hopper::Ring<T::kStages>& ring) {
    if (block + T::kStages >= count) return;
    if (lane < p.share_w) {
      const uint32_t barrier = producer.empty + ring.stage * 8;
      if (p.share_w == 1) {
        hopper::barrier_arrive(barrier);
      } else {
        hopper::barrier_arrive_remote(barrier, static_cast<uint32_t>(lane));
      }
    }
  };
  hopper::Ring<T::kStages> ring, before;
  hopper::pin(acc);
  int block = 0;
  do {
    hopper::barrier_wait(producer.full + ring.stage * 8, ring.parity);
    const uint32_t stage = producer.stages + ring.stage * T::kStageBytes;
    const uint64_t a = hopper::descriptor_k_major(stage + thread / 128 * (64 * 128));
    const uint64_t b = hopper::descriptor_k_major(stage + T::kBytesX);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      hopper::wgmma_k_major(acc, a + step * 2, b + step * 2, block != 0 || step != 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (block != 0) release(block - 1, before);
    before = ring;
    ring.next();
  } while (++block < count);
  hopper::wgmma_wait<0>();
  hopper::pin(acc);
}

// The tile turned to rows of tokens: binary32, or of kSwiglu words of rounded gate and up.
template <class T>
__device__ __forceinline__ void turn_tile(const float (&acc)[T::kRegisters], float* tile, int thread) {
  const int lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
  if constexpr (T::kOutput == MatmulOutput::kSwiglu) {
    auto* words = reinterpret_cast<uint32_t*>(tile) + row * T::kStride + lane % 4;
#pragma unroll
    for (int i = 0; i < T::kRegisters / 4; ++i) {
      words[4 * i] = pack_bf16(acc[4 * i], acc[4 * i + 1]);
      words[4 * i + 8 * T::kStride] = pack_bf16(acc[4 * i + 2], acc[4 * i + 3]);
    }
  } else {
    float* floats = tile + row * T::kStride + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < T::kRegisters / 4; ++i) {
      *reinterpret_cast<float2*>(floats + 8 * i) = make_float2(acc[4 * i], acc[4 * i + 1]);
      *reinterpret_cast<float2*>(floats + 8 * i + 8 * T::kStride) =
          make_float2(acc[4 * i + 2], acc[4 * i + 3]);
    }
  }
}

// The tokens of the tile that this block stores.
struct Slice {
  int begin, count;  // rows of the tile
};
template <class T>
__device__ __forceinline__ Slice slice_of(const TileArguments& p, int row, int chunk) {
  const int tokens = max(0, min(T::kTokens, p.epilogue.m - row * T::kTokens));
  if (!T::kSplit) return {0, tokens};
  const int rows = (tokens + p.chunks - 1) / p.chunks;
  return {chunk * rows, max(0, min(rows, tokens - chunk * rows))};
}

// What a step of the epilogue reads from memory. The first one's is read before the product.
template <class T>
__device__ __forceinline__ void read_ahead(const EpilogueArguments& e, int token, int column,
                                           TileOperand<T::kOutput>& operand) {
  if (column >= e.n) return;
  if constexpr (T::kOutput == MatmulOutput::kResidual) {
    load_eight(e.residual + static_cast<int64_t>(token) * e.ld_residual, column, e.n, operand.words);
  } else {
    load_rotation(e, token, column, operand);
  }
}

// Eight columns of the turned tile a step; kSplit: after adding the chunk sums, ascending.
template <class T>
__device__ __forceinline__ void store_items(const TileArguments& p, const Place& at, const Slice& slice,
                                            const float* tile, const float* received,
                                            TileOperand<T::kOutput>& operand, int thread, int first) {
  const EpilogueArguments& e = p.epilogue;
  const int slice_rows = slice_of<T>(p, at.row, 0).count;
  for (int item = thread; item < slice.count * T::kItems; item += T::kConsumers) {
    const int row = item / T::kItems;
    const int place = item - row * T::kItems;
    const int token = at.row * T::kTokens + slice.begin + row;
    const int column = first + place * (T::kPaired ? 4 : 8);
    if (item != thread) read_ahead<T>(e, token, column, operand);
    if (column >= e.n) continue;
    const float* own = tile + (slice.begin + row) * T::kStride + place * 8;
    float v[8];
    if constexpr (T::kSplit) {
      float part[kDecodeMaxChunks][8];
#pragma unroll
      for (int c = 0; c < kDecodeMaxChunks; ++c) {
        if (c < p.chunks)
          load_floats(part[c],
                      c == at.chunk ? own : received + (c * slice_rows + row) * T::kStride + place * 8);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = part[0][i];
#pragma unroll
      for (int c = 1; c < kDecodeMaxChunks; ++c) {
        if (c < p.chunks) {
#pragma unroll
          for (int i = 0; i < 8; ++i) v[i] = v[i] + part[c][i];
        }
      }
    } else {
      load_floats(v, own);
    }
    if constexpr (T::kOutput == MatmulOutput::kResidual) {
      store_sum(e, token, column, operand.words, v);
    } else {
      store_rotated(e, token, column, operand, v);
    }
  }
}

inline constexpr uint32_t kGatesOfOne = 0x3F803F80;  // two

// kSwiglu: four columns of two tokens a step.
template <class T>
__device__ __forceinline__ void store_gates(const TileArguments& p, const Place& at, const float* tile,
                                            int tokens, int thread, int first) {
  const EpilogueArguments& e = p.epilogue;
  const int items = tokens * T::kItems;
  const auto* words = reinterpret_cast<const uint4*>(tile);
  for (int item = thread; item < items; item += 2 * T::kConsumers) {
    uint32_t gate[4], up[4], act[4];
    int row[2], place[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int number = min(item + i * T::kConsumers, items - 1);
      row[i] = number / T::kItems;
      place[i] = number - row[i] * T::kItems;
      split_pairs(words[row[i] * (T::kStride / 4) + place[i]], gate + 2 * i, up + 2 * i);
      // Zeros past the last column would send the warp the exact way.
      if (first + place[i] * 4 >= e.n) gate[2 * i] = gate[2 * i + 1] = kGatesOfOne;
    }
    swiglu_eight(gate, up, act);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = first + place[i] * 4;
      if (item + i * T::kConsumers < items && column < e.n)
        store_four_gates(e, at.row * T::kTokens + row[i], column, gate + 2 * i, up + 2 * i, act + 2 * i);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, T::kPerSm)
    decode_tile_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                       const __grid_constant__ TileArguments p) {
  extern __shared__ uint8_t shared[];
  const uint32_t base = hopper::shared_address(shared);
  const uint32_t stages = (base + 1023U) & ~1023U;
  auto* tile = reinterpret_cast<float*>(shared + (stages - base));
  const auto* received = reinterpret_cast<const float*>(shared + (stages - base) + T::kTileBytes);
  const uint32_t full = stages + T::kTileBytes + T::kReceivedBytes;
  const uint32_t empty = full + 8 * T::kStages;
  const uint32_t arrived = empty + 8 * T::kStages;  // the chunk sums of the others
  const Place at = place_of(p, T::kSplit);
  const bool clustered = p.share_w * p.chunks != 1;
  const int thread = threadIdx.x;
  const bool consumes = thread < T::kConsumers;
  const bool produces = thread == T::kConsumers;
  const Slice slice = slice_of<T>(p, at.row, at.chunk);
  if (produces) {
    for (int i = 0; i < T::kStages; ++i) {
      hopper::barrier_init(full + 8 * i, 1);
      hopper::barrier_init(empty + 8 * i, 4 * T::kGroups * p.share_w);
    }
    if constexpr (T::kSplit) {
      hopper::barrier_init(arrived, 1);
      hopper::barrier_init_fence();
      hopper::barrier_expect(arrived, (p.chunks - 1) * slice.count * T::kStride * 4);
    }
    hopper::barrier_init_fence();
    hopper::prefetch_map(&w);
    hopper::prefetch_map(&x);
  }
  if (clustered) {
    hopper::cluster_sync_relaxed();  // barrier_init_fence has made the barriers visible
  } else {
    __syncthreads();
  }
  // What follows a product that adds to the residual stream is a norm and then a wide product, whose copies
  // of W would hold up the attention that this one waits for.
  constexpr bool kStartsNextLate = T::kOutput == MatmulOutput::kResidual;
  if constexpr (!kStartsNextLate) cuda::let_next_launch_start();
  const int first = at.chunk * p.chunk_blocks;
  const Producer<T> producer{w,
                             x,
                             p,
                             at,
                             stages,
                             full,
                             empty,
                             first,
                             min(p.chunk_blocks, p.blocks - first),
                             weight_box<T>(p, at.column)};
  if (produces) {
    producer.start();
    hopper::Ring<T::kStages> ring;
    for (int block = T::kStages; block < producer.count; ++block, ring.next())
      producer.refill(block, ring.stage, ring.parity);
  }
  __syncwarp();
  if (consumes) {
    cuda::wait_for_launch_before();
    if constexpr (kStartsNextLate) cuda::let_next_launch_start();
    int column = at.column * T::kColumns;  // the tile's first; of pairs, of its first halves
    if (T::kPaired) column = producer.box.head * 2 * p.half + producer.box.row;
    TileOperand<T::kOutput> operand;
    if constexpr (T::kOutput != MatmulOutput::kSwiglu) {
      if (thread < slice.count * T::kItems)
        read_ahead<T>(p.epilogue, at.row * T::kTokens + slice.begin + thread / T::kItems,
                      column + thread % T::kItems * (T::kPaired ? 4 : 8), operand);
    }
    float acc[T::kRegisters];
    tile_chain<T>(acc, producer, thread);
    hopper::sync_threads(1, T::kConsumers);  // the stages become the turned tile
    turn_tile<T>(acc, tile, thread);
    if constexpr (T::kSplit) hopper::fence_async();
    hopper::sync_threads(1, T::kConsumers);
    if constexpr (T::kSplit) {
      if (thread < p.chunks && thread != at.chunk) {
        const Slice theirs = slice_of<T>(p, at.row, thread);
        const int rows = slice_of<T>(p, at.row, 0).count;
        if (theirs.count > 0)
          copy_to_block(stages + T::kTileBytes + at.chunk * rows * T::kStride * 4,
                        stages + theirs.begin * T::kStride * 4, theirs.count * T::kStride * 4, arrived,
                        thread);
      }
      hopper::barrier_wait(arrived, 0);
    }
    // Waited for below: no block of the cluster may leave while another still copies from it or arrives at
    // its barriers.
    __syncwarp();
    if (clustered) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    if constexpr (T::kOutput == MatmulOutput::kSwiglu) {
      store_gates<T>(p, at, tile, slice.count, thread, column);
    } else {
      store_items<T>(p, at, slice, tile, received, operand, thread, column);
    }
    __syncwarp();
  } else if (clustered) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  if (clustered) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

}  // namespace lockstep::ops
