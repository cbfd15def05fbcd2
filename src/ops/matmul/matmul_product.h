// SPDX-License-Identifier: Apache-2.0
// The kernel of forward products and input gradients: result tiles of 128 x kColumns, k in blocks of 64. One
// producer thread copies blocks into a ring of stages; two warpgroups multiply, 64 rows each, accumulators in
// registers, and write results to shared memory, from where the other threads of the first warpgroup have
// them stored (matmul_staging.h) during the next tile. The grid is persistent; blocks of a cluster take tiles
// one below the other and share the copies of B.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "device/cuda/launch.h"
#include "ops/matmul/matmul_epilogue.h"
#include "ops/matmul/matmul_staging.h"
#include "ops/matmul/matmul_tensor_map.h"
#include "ops/matmul/matmul_wgmma.h"

namespace lockstep::ops {

inline constexpr int kTileRows = 128;
inline constexpr int kTileDepth = 64;  // k of a stage
inline constexpr int kProductThreads = 384;
inline constexpr int kSharedLimit = 232448;
inline constexpr int kSharedSlack = 2048;  // alignment and barriers

// How sums of several chunks are kept: not needed, in registers (up to 192 columns), in memory.
enum class Fold { kNone, kRegisters, kMemory };

struct ProductArguments {
  int tiles_rows = 0, tiles_columns = 0;
  int group = 1;          // cluster rows of tiles that are walked together, for the L2
  int blocks = 0;         // of k
  int chunk_blocks = 0;   // blocks a chunk
  float* sums = nullptr;  // Fold::kMemory: [grid][kTileRows * kColumns]
  EpilogueArguments epilogue;
};

// kOuterB: B is [k, columns] (the input gradient), else [columns, k].
template <int kColumns_, MatmulOutput kOutput_, int kHeadSize_, Fold kFold_, bool kOuterB_, int kCluster_,
          int kPlaces_ = 0>
struct Product {
  static constexpr int kColumns = kColumns_;
  static constexpr MatmulOutput kOutput = kOutput_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr Fold kFold = kFold_;
  static constexpr bool kOuterB = kOuterB_;
  static constexpr int kCluster = kCluster_;
  static constexpr bool kPaired = kOutput == MatmulOutput::kSwiglu;  // half the columns gate, half up
  static constexpr int kResultColumns = kPaired ? kColumns / 2 : kColumns;
  static constexpr int kBoxesB = kOuterB ? (kColumns + 63) / 64 : 2;
  static constexpr int kBoxRowsB = kOuterB ? 64 : kColumns / 2;
  static constexpr int kBoxBytesB = kBoxRowsB * 128;
  static constexpr int kBytesA = kTileRows * 128;
  static constexpr int kStageBytes = kBytesA + kBoxesB * kBoxBytesB;

  // matmul_staging.h: boxes of 64 rows, their places.
  static constexpr bool kIsFloat = kOutput == MatmulOutput::kFloat;
  static constexpr int kBoxColumns = kIsFloat || kResultColumns % 64 != 0 ? 32 : 64;
  static constexpr int kBoxRowBytes = kBoxColumns * (kIsFloat ? 4 : 2);
  static constexpr int kBoxBytes = 64 * kBoxRowBytes;
  static constexpr int kGranule = kIsFloat ? 4 : 8;  // columns in 16 bytes: the least that a store leaves out
  static constexpr int kBoxes = kColumns / kBoxColumns;
  static constexpr int kPlaces = kPlaces_ != 0 ? kPlaces_ : kIsFloat ? kBoxes / 2 : kBoxes;
  static constexpr int kPlacesBytes = 2 * kPlaces * kBoxBytes;
  static_assert(kPlaces > 1 && (kOutput != MatmulOutput::kResidual || kPlaces == kBoxes));

  static constexpr int kStages = std::min(6, (kSharedLimit - kSharedSlack - kPlacesBytes) / kStageBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes + kPlacesBytes + kSharedSlack;
  static_assert(kStageBytes % 1024 == 0 && kBoxBytesB % 1024 == 0);
  static_assert(kColumns % kBoxColumns == 0 && 16 * kStages + 32 * kPlaces <= 1024);
};

struct Tile {
  int row, column;  // numbers of tiles
};

// Tile of number t of this cluster: groups of cluster rows, in each the columns outermost.
template <int kCluster>
__device__ __forceinline__ Tile tile_at(const ProductArguments& p, int t, int rank) {
  const int cluster_rows = (p.tiles_rows + kCluster - 1) / kCluster;
  const int per_group = p.group * p.tiles_columns;
  const int group = t / per_group;
  const int rows = min(p.group, cluster_rows - group * p.group);
  const int inside = t - group * per_group;
  return {(group * p.group + inside % rows) * kCluster + rank, inside / rows};
}

template <class P>
__device__ __forceinline__ void produce(const CUtensorMap& a, const CUtensorMap& b, const ProductArguments& p,
                                        uint32_t stages, uint32_t full, uint32_t empty, int rank) {
  const int tiles = (p.tiles_rows + P::kCluster - 1) / P::kCluster * p.tiles_columns;
  hopper::Ring<P::kStages> ring;
  for (int t = blockIdx.x / P::kCluster; t < tiles; t += gridDim.x / P::kCluster) {
    const Tile tile = tile_at<P::kCluster>(p, t, rank);
    for (int block = 0; block < p.blocks; ++block, ring.next()) {
      const uint32_t stage = stages + ring.stage * P::kStageBytes;
      const uint32_t barrier = full + ring.stage * 8;
      hopper::barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
      hopper::barrier_expect(barrier, P::kStageBytes);
      hopper::copy_box(stage, &a, block * kTileDepth, tile.row * kTileRows, barrier);
#pragma unroll
      for (int box = 0; box < P::kBoxesB; ++box) {
        if (P::kCluster > 1 && box % P::kCluster != rank) continue;
        const uint32_t to = stage + P::kBytesA + box * P::kBoxBytesB;
        int column = block * kTileDepth;
        int row = tile.column * P::kColumns + box * P::kBoxRowsB;
        if (P::kPaired) row = tile.column * P::kResultColumns + box * p.epilogue.n;
        if (P::kOuterB) {
          row = column;
          column = tile.column * P::kColumns + box * 64;
        }
        if (P::kCluster > 1) {
          hopper::copy_box_multicast(to, &b, column, row, barrier, (1U << P::kCluster) - 1);
        } else {
          hopper::copy_box(to, &b, column, row, barrier);
        }
      }
    }
  }
}

// One chunk's chain into acc; one block at least.
template <class P, int kRegisters>
__device__ __forceinline__ void chunk_chain(float (&acc)[kRegisters], int blocks,
                                            hopper::Ring<P::kStages>& ring, uint32_t stages, uint32_t full,
                                            uint32_t empty, int group, int lane) {
  uint32_t before = 0;  // stage of the block before
  hopper::pin(acc);
  int block = 0;
  do {
    hopper::barrier_wait(full + ring.stage * 8, ring.parity);
    const uint32_t at = stages + ring.stage * P::kStageBytes;
    const uint64_t a = hopper::descriptor_k_major(at + group * (64 * 128));
    const uint32_t at_b = at + P::kBytesA;
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      hopper::wgmma<false, P::kOuterB>(acc, a + step * (32 >> 4), hopper::descriptor<P::kOuterB>(at_b, step),
                                       block != 0 || step != 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (block != 0) hopper::release_stage(empty + before * 8, P::kCluster, lane);
    before = ring.stage;
    ring.next();
  } while (++block < blocks);
  hopper::wgmma_wait<0>();
  hopper::pin(acc);
  hopper::release_stage(empty + before * 8, P::kCluster, lane);
}

// acc = what was kept + acc; a thread's values are 256 * 16 bytes apart.
template <int kRegisters>
__device__ __forceinline__ void add_sums(float (&acc)[kRegisters], const float4* sums) {
#pragma unroll
  for (int i = 0; i < kRegisters; i += 4) {
    const float4 before = sums[i * 64];
    acc[i] = before.x + acc[i];
    acc[i + 1] = before.y + acc[i + 1];
    acc[i + 2] = before.z + acc[i + 2];
    acc[i + 3] = before.w + acc[i + 3];
    if (i % 16 == 12) asm volatile("" ::: "memory");  // few loads at a time: the registers are full
  }
}
template <int kRegisters>
__device__ __forceinline__ void keep_sums(const float (&acc)[kRegisters], float4* sums) {
#pragma unroll
  for (int i = 0; i < kRegisters; i += 4)
    sums[i * 64] = make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
}

template <class P>
__device__ __forceinline__ int cluster_tiles(const ProductArguments& p) {
  return (p.tiles_rows + P::kCluster - 1) / P::kCluster * p.tiles_columns;
}

template <class P>
__device__ __forceinline__ void consume(const ProductArguments& p, uint32_t stages, uint32_t full,
                                        uint32_t empty, const Places& places, int rank) {
  constexpr int kRegisters = P::kColumns / 2;
  const int thread = threadIdx.x - 128;
  const int group = thread / 128;
  const int warp = thread / 32 % 4;
  const int lane = thread % 32;
  const int tiles = cluster_tiles<P>(p);
  hopper::Ring<P::kStages> ring;
  hopper::Ring<P::kPlaces> boxes;
  float acc[kRegisters];
  RopeTile<P::kHeadSize> rope;
  for (int t = blockIdx.x / P::kCluster; t < tiles; t += gridDim.x / P::kCluster) {
    const Tile tile = tile_at<P::kCluster>(p, t, rank);
    const int row = tile.row * kTileRows + group * 64 + warp * 16 + lane / 4;
    const int column = tile.column * P::kResultColumns;
    if constexpr (P::kHeadSize != 0) rope.load(p.epilogue, row, column, lane);
    if constexpr (P::kFold == Fold::kNone) {
      chunk_chain<P>(acc, p.blocks, ring, stages, full, empty, group, lane);
    } else if constexpr (P::kFold == Fold::kRegisters) {
      float sum[kRegisters];
      chunk_chain<P>(sum, p.chunk_blocks, ring, stages, full, empty, group, lane);
      for (int begin = p.chunk_blocks; begin < p.blocks; begin += p.chunk_blocks) {
        chunk_chain<P>(acc, min(p.chunk_blocks, p.blocks - begin), ring, stages, full, empty, group, lane);
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) sum[i] = sum[i] + acc[i];
      }
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) acc[i] = sum[i];
    } else {
      float4* sums =
          reinterpret_cast<float4*>(p.sums) + static_cast<int64_t>(blockIdx.x) * 64 * kRegisters + thread;
      for (int begin = 0; begin < p.blocks; begin += p.chunk_blocks) {
        chunk_chain<P>(acc, min(p.chunk_blocks, p.blocks - begin), ring, stages, full, empty, group, lane);
        if (begin != 0) add_sums(acc, sums);
        if (begin + p.chunk_blocks < p.blocks) keep_sums(acc, sums);
      }
    }
    if constexpr (P::kOutput != MatmulOutput::kSwiglu) {
      if (p.epilogue.bias != nullptr) add_bias(acc, p.epilogue, column + 2 * (lane % 4));
    }
    if constexpr (P::kHeadSize != 0) rope.apply(acc, p.epilogue, column + 2 * (lane % 4));
    write_boxes<P>(acc, places, boxes, warp, lane);
  }
}

// Has the boxes of 64 rows of each tile stored, and fetches the next tile's of the residual. One thread.
template <class P>
__device__ __forceinline__ void store_boxes(const CUtensorMap& first, const CUtensorMap& second,
                                            const ProductArguments& p, const Places& places, int group,
                                            int rank) {
  constexpr bool kResidual = P::kOutput == MatmulOutput::kResidual;
  const int tiles = cluster_tiles<P>(p);
  const int step = gridDim.x / P::kCluster;
  int t = blockIdx.x / P::kCluster;
  if (kResidual && t < tiles) {
    const Tile tile = tile_at<P::kCluster>(p, t, rank);
    for (int box = 0; box < P::kBoxes; ++box)
      load_residual<P>(&second, places, box, box_column<P>(tile.column, box),
                       tile.row * kTileRows + group * 64);
  }
  hopper::Ring<P::kPlaces> ring;
  for (; t < tiles; t += step) {
    const Tile tile = tile_at<P::kCluster>(p, t, rank);
    const Tile next = tile_at<P::kCluster>(p, min(t + step, tiles - 1), rank);
    const auto release = [&](uint32_t place, int box) {
      if (!kResidual) {
        hopper::barrier_arrive(places.ready + place * 8);
      } else if (t + step < tiles) {
        if (p.epilogue.n % P::kGranule != 0) hopper::fence_async();  // read by store_last_columns
        load_residual<P>(&second, places, place, box_column<P>(next.column, box),
                         next.row * kTileRows + group * 64);
      }
    };
    uint32_t before = 0;
#pragma unroll 1
    for (int box = 0; box < P::kBoxes; ++box, ring.next()) {
      hopper::barrier_wait(places.filled + ring.stage * 8, ring.parity);
      const uint32_t at = places.boxes + ring.stage * P::kBoxBytes;
      const int column = box_column<P>(tile.column, box);
      const int row = tile.row * kTileRows + group * 64;
      if (column < p.epilogue.n / P::kGranule * P::kGranule) hopper::store_box(&first, at, column, row);
      hopper::commit_stores();  // of a box that is not stored too: the wait below counts groups
      if (p.epilogue.n % P::kGranule != 0) store_last_columns<P>(p.epilogue, at, column, row);
      hopper::wait_stores_read<1>();
      if (box != 0) release(before, box - 1);
      before = ring.stage;
    }
    hopper::wait_stores_read<0>();
    release(before, P::kBoxes - 1);
  }
}

// kSwiglu: stores the boxes of gate and up, and act of them. kActivatingWarps warps.
template <class P>
__device__ __forceinline__ void activate(const CUtensorMap& first, const CUtensorMap& second,
                                         const ProductArguments& p, const Places& upper, const Places& lower,
                                         int rank, int warp, int lane) {
  const int tiles = cluster_tiles<P>(p);
  const bool stores = warp == 0 && lane == 0 && p.epilogue.out != nullptr;
  hopper::Ring<P::kPlaces> ring;
  for (int t = blockIdx.x / P::kCluster; t < tiles; t += gridDim.x / P::kCluster) {
    const Tile tile = tile_at<P::kCluster>(p, t, rank);
    hopper::Ring<P::kPlaces> up;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const Places places = group == 0 ? upper : lower;
      const int row = tile.row * kTileRows + group * 64;
      up = ring;
#pragma unroll 1
      for (int box = 0; box < P::kBoxes; box += 2, up.next()) {
        const hopper::Ring<P::kPlaces> gate = up;
        up.next();
        const int column = box_column<P>(tile.column, box);
        hopper::barrier_wait(places.filled + gate.stage * 8, gate.parity);
        hopper::barrier_wait(places.filled + up.stage * 8, up.parity);
        if (stores) {
          hopper::store_box(&first, places.boxes + gate.stage * P::kBoxBytes, column, row);
          hopper::store_box(&second, places.boxes + up.stage * P::kBoxBytes, column, row);
          hopper::commit_stores();
        }
        const int turn = (warp + box / 2 + group) % kActivatingWarps;
        activate_boxes<P>(p.epilogue, places.boxes + gate.stage * P::kBoxBytes,
                          places.boxes + up.stage * P::kBoxBytes, row, column, turn, lane);
        if (stores) hopper::wait_stores_read<0>();
        __syncwarp();
        if (lane == 0) {
          hopper::barrier_arrive(places.ready + gate.stage * 8);
          hopper::barrier_arrive(places.ready + up.stage * 8);
        }
      }
    }
    ring = up;
  }
}

// first: of the result, kSwiglu: of gate. second: of up or of the residual.
template <class P>
__global__ void __launch_bounds__(kProductThreads, 1)
    product_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                   const __grid_constant__ CUtensorMap first, const __grid_constant__ CUtensorMap second,
                   const __grid_constant__ ProductArguments p) {
  extern __shared__ uint8_t shared[];
  const uint32_t full = hopper::shared_address(shared);
  const uint32_t empty = full + 8 * P::kStages;
  const uint32_t stages = (full + 1024 + 1023U) & ~1023U;
  const auto places_of = [&](int group) {
    const uint32_t filled = empty + 8 * P::kStages + group * 16 * P::kPlaces;
    return Places{stages + P::kStages * P::kStageBytes + group * (P::kPlaces * P::kBoxBytes), filled,
                  filled + 8 * P::kPlaces};
  };
  const int rank = P::kCluster == 1 ? 0 : static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < P::kStages; ++i) {
      hopper::barrier_init(full + 8 * i, 1);
      hopper::barrier_init(empty + 8 * i, 8 * P::kCluster);  // a thread of each multiplying warp
    }
    for (int i = 0; i < P::kPlaces; ++i) {
      for (int group = 0; group < 2; ++group) {
        hopper::barrier_init(places_of(group).filled + 8 * i, 128);
        hopper::barrier_init(places_of(group).ready + 8 * i, P::kPaired ? kActivatingWarps : 1);
      }
    }
    hopper::barrier_init_fence();
    hopper::prefetch_map(&a);
    hopper::prefetch_map(&b);
    hopper::prefetch_map(&first);
    hopper::prefetch_map(&second);
  }
  __syncthreads();
  if constexpr (P::kCluster > 1) hopper::cluster_sync();
  // The 168 registers a thread of the launch, shared out anew: with a sum above 3 * 168 a block would wait
  // for ever.
  const int warp = threadIdx.x / 32;
  if (warp < 4) {
    hopper::fewer_registers<P::kPaired ? 88 : 40>();
    if (threadIdx.x == 0) produce<P>(a, b, p, stages, full, empty, rank);
    if constexpr (P::kPaired) {
      if (warp != 0)
        activate<P>(first, second, p, places_of(0), places_of(1), rank, warp - 1, threadIdx.x % 32);
    } else if (threadIdx.x == 32 || threadIdx.x == 64) {
      store_boxes<P>(first, second, p, places_of(warp - 1), warp - 1, rank);
    }
  } else {
    hopper::more_registers<P::kPaired ? 208 : 232>();
    consume<P>(p, stages, full, empty, places_of(warp / 4 - 1), rank);
  }
  // No block of the cluster may leave while another still copies into it or arrives at its barriers.
  if constexpr (P::kCluster > 1) hopper::cluster_sync_relaxed();
}

template <class P>
void launch_product(const cuda::Context& context, const CUtensorMap& a, const CUtensorMap& b,
                    const CUtensorMap& first, const CUtensorMap& second, const ProductArguments& arguments,
                    const char* what) {
  cuda::allow_shared<product_kernel<P>>(P::kSharedBytes, "a product");
  const int clusters = (arguments.tiles_rows + P::kCluster - 1) / P::kCluster * arguments.tiles_columns;
  const int most = std::max(1, context.sms() / P::kCluster);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(clusters, most) * P::kCluster));
  config.blockDim = dim3(kProductThreads);
  config.dynamicSmemBytes = P::kSharedBytes;
  config.stream = context.stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {P::kCluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  cuda::check(cudaLaunchKernelEx(&config, product_kernel<P>, a, b, first, second, arguments), what);
}

// Sizes and maps from the shape, then the launch. B: [n, k] or, kOuterB, [k, n]; n: its rows or columns.
template <class P>
void run_product(const cuda::Context& context, const Bf16* a, int64_t lda, const Bf16* b, int64_t ldb,
                 int64_t m, int64_t n, int64_t k, int64_t chunk, const EpilogueArguments& epilogue,
                 const char* what) {
  ProductArguments p;
  p.tiles_rows = static_cast<int>((m + kTileRows - 1) / kTileRows);
  p.tiles_columns = static_cast<int>((epilogue.n + P::kResultColumns - 1) / P::kResultColumns);
  p.blocks = static_cast<int>((k + kTileDepth - 1) / kTileDepth);
  p.chunk_blocks = static_cast<int>(chunk / kTileDepth);
  p.epilogue = epilogue;
  const int64_t row_bytes = int64_t{kTileRows} * P::kCluster * k * 2;
  p.group = static_cast<int>(std::clamp<int64_t>((int64_t{16} << 20) / row_bytes, 8 / P::kCluster, 4096));
  if (P::kFold == Fold::kMemory) {
    p.sums = static_cast<float*>(context.scratch(int64_t{context.sms() + 1} * kTileRows * P::kColumns * 4));
  }
  const CUtensorMap map_a = tensor_map(a, m, k, lda, kTileRows);
  const CUtensorMap map_b =
      P::kOuterB ? tensor_map(b, k, n, ldb, P::kBoxRowsB) : tensor_map(b, n, k, ldb, P::kBoxRowsB);
  const EpilogueArguments& e = p.epilogue;
  const auto map_of = [&](const void* data, int64_t columns, int64_t ld) {
    return result_map(data, P::kIsFloat, m, columns, ld, P::kBoxColumns);
  };
  const auto result = [&](const void* data, int64_t ld) {
    return map_of(data, std::max(e.n / P::kGranule, 1) * P::kGranule, ld);
  };
  CUtensorMap first, second;
  if (P::kPaired) {
    const Bf16* out = static_cast<const Bf16*>(e.out);
    first = out == nullptr ? result(e.act, e.ld_act) : result(out, e.ld_out);  // not stored to if it is null
    second = out == nullptr ? first : result(out + e.n, e.ld_out);
  } else {
    first = result(e.out, e.ld_out);
    second = P::kOutput == MatmulOutput::kResidual ? map_of(e.residual, e.n, e.ld_residual) : first;
  }
  launch_product<P>(context, map_a, map_b, first, second, p, what);
}

// Rounds of a persistent grid times the cost of a tile of `columns`: the cheapest width for a shape.
inline double tiling_cost(const cuda::Context& context, int64_t m, int64_t n, int columns) {
  const int64_t tiles = (m + kTileRows - 1) / kTileRows * ((n + columns - 1) / columns);
  const int64_t rounds = (tiles + context.sms() - 1) / context.sms();
  // Narrow tiles read more for each product: measured in bench/cuda/gemm_bench.cu.
  return static_cast<double>(rounds) * (columns + 24 + (columns < 192 ? 8 : 0));
}

}  // namespace lockstep::ops
