// SPDX-License-Identifier: Apache-2.0
// Weight gradient: tiles of 128 x 128 of the image, rows (tokens) in blocks of 64. A block takes a range of
// (tile, leaf) in that order; a leaf's chain ends in accumulators, is converted and added to 64-bit integers
// in registers, which are added to the image when the tile changes. Integers add in any order, so the cut
// into ranges changes nothing.
#include <algorithm>

#include "core/check.h"
#include "device/cuda/launch.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul_bf16_cuda.h"
#include "ops/matmul/matmul_product.h"

namespace lockstep::ops {
namespace {

constexpr int kTile = 128;
constexpr int kStages = 6;
constexpr int kStageBytes = 2 * kTile * kTileDepth * 2;
constexpr int kSharedBytes = kStages * kStageBytes + kSharedSlack;
constexpr int kRegisters = kTile / 2;
using Ring = hopper::Ring<kStages>;

// Blocks of a cluster take neighbouring tiles: those of a row share the copies of dy, those of a column of x.
template <int kRows_, int kColumns_>
struct Cluster {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kSize = kRows * kColumns;
};

struct Arguments {
  int rows, n, k;
  int tiles_columns;  // of k, in clusters
  int tiles;          // in clusters
  WeightGradientBf16 target;
  float* sums;  // [grid][kTile * kTile]: sums of whole chunks of the leaf at hand
};

struct Maps {
  CUtensorMap dy, x;              // boxes of 64 rows
  CUtensorMap dy_group, x_group;  // of 16
};

// What a leaf costs, in blocks: where ranges are cut depends on it, bits do not.
__device__ __forceinline__ int leaf_cost(const WeightGradientLeaf& leaf) {
  return (leaf.end - leaf.begin) / kTileDepth + 4;
}

// Calls visit(tile, leaf) for the pairs of this cluster, in order. Every thread sees the same pairs.
template <class C, class Visit>
__device__ __forceinline__ void for_each_leaf(const Arguments& p, const Visit& visit) {
  int64_t per_tile = 0;
  for (int i = 0; i < p.target.leaf_count; ++i) per_tile += leaf_cost(p.target.leaves[i]);
  const int64_t all = per_tile * p.tiles;
  const int clusters = static_cast<int>(gridDim.x) / C::kSize;
  const int cluster = static_cast<int>(blockIdx.x) / C::kSize;
  const int64_t begin = all * cluster / clusters;
  const int64_t end = all * (cluster + 1) / clusters;
  for (int64_t tile = begin / per_tile; tile < p.tiles && tile * per_tile < end; ++tile) {
    int64_t at = tile * per_tile;
    for (int i = 0; i < p.target.leaf_count; ++i) {
      const WeightGradientLeaf leaf = p.target.leaves[i];
      if (at >= begin && at < end) visit(static_cast<int>(tile), leaf);
      at += leaf_cost(leaf);
    }
  }
}

// Rows of the block that starts after `done` rows of a leaf: blocks end at the leaf's end and at chunks'
// ends.
__device__ __forceinline__ int block_rows(const WeightGradientLeaf& leaf, int done) {
  const int chunk = static_cast<int>(numerics::kGradientChunk);
  const int to_chunk = chunk - (leaf.rows_before + done) % chunk;
  return min(min(kTileDepth, leaf.end - leaf.begin - done), to_chunk);
}

// Rows and columns of a block's tile.
struct Corner {
  int row, column;
};
template <class C>
__device__ __forceinline__ Corner corner_of(const Arguments& p, int tile, int rank) {
  return {(tile / p.tiles_columns * C::kRows + rank / C::kColumns) * kTile,
          (tile % p.tiles_columns * C::kColumns + rank % C::kColumns) * kTile};
}

// Box `box` of 64 columns of an operand that `sharers` blocks use: block number `number` of them copies it,
// for all of mask.
template <int kSharers>
__device__ __forceinline__ void copy_shared(uint32_t to, const CUtensorMap* map, int column, int row,
                                            uint32_t barrier, int box, int number, uint32_t mask) {
  if constexpr (kSharers == 1) {
    hopper::copy_box(to, map, column, row, barrier);
  } else {
    if (box == number) hopper::copy_box_multicast(to, map, column, row, barrier, static_cast<uint16_t>(mask));
  }
}

template <class C>
__device__ __forceinline__ void produce_leaves(const Maps& m, const Arguments& p, uint32_t stages,
                                               uint32_t full, uint32_t empty, int rank) {
  static_assert(C::kRows <= 2 && C::kColumns <= 2);  // an operand has two boxes
  const int cluster_row = rank / C::kColumns, cluster_column = rank % C::kColumns;
  const uint32_t row_mask = ((1U << C::kColumns) - 1) << (cluster_row * C::kColumns);
  const uint32_t column_mask = (C::kRows == 1 ? 1U : 1U | (1U << C::kColumns)) << cluster_column;
  Ring ring;
  for_each_leaf<C>(p, [&](int tile, const WeightGradientLeaf& leaf) {
    const Corner corner = corner_of<C>(p, tile, rank);
    for (int done = 0; done < leaf.end - leaf.begin; ring.next()) {
      const uint32_t stage = stages + ring.stage * kStageBytes;
      const uint32_t barrier = full + ring.stage * 8;
      hopper::barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
      hopper::barrier_expect(barrier, kStageBytes);
      const int rows = block_rows(leaf, done);
      const int token = leaf.begin + done;
      done += rows;
      const auto copy = [&](uint32_t to, const CUtensorMap* dy, const CUtensorMap* x, int from) {
#pragma unroll
        for (int box = 0; box < 2; ++box) {
          copy_shared<C::kColumns>(to + box * 8192, dy, corner.row + box * 64, from, barrier, box,
                                   cluster_column, row_mask);
          copy_shared<C::kRows>(to + 16384 + box * 8192, x, corner.column + box * 64, from, barrier, box,
                                cluster_row, column_mask);
        }
      };
      if (rows == kTileDepth) {
        copy(stage, &m.dy, &m.x, token);
      } else {  // groups of 16 rows; those that are not the leaf's come from behind the last row: zeros
        for (int group = 0; group < kTileDepth / 16; ++group)
          copy(stage + 2048 * group, &m.dy_group, &m.x_group,
               16 * group < rows ? token + 16 * group : p.rows);
      }
    }
  });
}

// Where a thread's elements are: rows row and row + 8, columns column + 8 i and + 1.
struct Place {
  int row, column;
  __device__ __forceinline__ bool inside(const Arguments& p, int i) const {
    return row + 8 * (i / 2 % 2) < p.n && column + 8 * (i / 4) + i % 2 < p.k;
  }
  __device__ __forceinline__ int64_t at(const Arguments& p, int i) const {
    return static_cast<int64_t>(row + 8 * (i / 2 % 2)) * p.k + column + 8 * (i / 4) + i % 2;
  }
};

template <class C>
struct Chain {
  uint32_t stages, full, empty;
  int group, lane;
  int target;  // block that this lane tells of a free stage; -1: none
  Ring ring;

  __device__ __forceinline__ void release(uint32_t stage) const {
    if constexpr (C::kSize == 1) {
      if (lane == 0) hopper::barrier_arrive(empty + stage * 8);
    } else {
      if (target >= 0) hopper::barrier_arrive_remote(empty + stage * 8, static_cast<uint32_t>(target));
    }
  }

  // acc goes on over `blocks` blocks, one at least.
  __device__ __forceinline__ void run(float (&acc)[kRegisters], int blocks) {
    hopper::pin(acc);
    uint32_t before = 0;
    int block = 0;
    do {
      hopper::barrier_wait(full + ring.stage * 8, ring.parity);
      const uint32_t at = stages + ring.stage * kStageBytes;
      const uint64_t a = hopper::descriptor_k_outer(at + group * 8192);
      const uint64_t b = hopper::descriptor_k_outer(at + 16384);
      hopper::wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        hopper::wgmma<true, true>(acc, a + step * 128, b + step * 128, true);
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (block != 0) release(before);
      before = ring.stage;
      ring.next();
    } while (++block < blocks);
    hopper::wgmma_wait<0>();
    hopper::pin(acc);
    release(before);
  }
};

// A leaf's chain, from carry_in or +0. Afterwards acc is the result, or, when the leaf is cut here, was
// stored.
template <class C>
__device__ __forceinline__ void leaf_chain(const Arguments& p, const WeightGradientLeaf& leaf,
                                           const Place& place, Chain<C>& chain, float (&acc)[kRegisters]) {
  const int chunk = static_cast<int>(numerics::kGradientChunk);
  const int64_t plane = static_cast<int64_t>(p.n) * p.k;
  float4* sums = reinterpret_cast<float4*>(p.sums) + static_cast<int64_t>(blockIdx.x) * (kTile * kTile / 4) +
                 (threadIdx.x - 128);
  const int rows = leaf.end - leaf.begin;
  bool has_sum = leaf.rows_before > chunk;
  if (leaf.begins == 0 && has_sum) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i)
      acc[i] = place.inside(p, i) ? p.target.carry_in[plane + place.at(p, i)] : 0.0F;
    keep_sums(acc, sums);
  }
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    acc[i] = 0.0F;
    if (leaf.begins == 0 && place.inside(p, i)) acc[i] = p.target.carry_in[place.at(p, i)];
  }
  for (int done = 0; done < rows;) {
    const int position = leaf.rows_before + done;
    if (position > 0 && position % chunk == 0) {  // a whole chunk lies behind: fold it
      if (has_sum) add_sums(acc, sums);
      keep_sums(acc, sums);
      has_sum = true;
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) acc[i] = 0.0F;
    }
    const int part = min(rows - done, chunk - position % chunk);
    chain.run(acc, (part + kTileDepth - 1) / kTileDepth);
    done += part;
  }
  if (leaf.ends == 0) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      if (place.inside(p, i)) p.target.carry_out[place.at(p, i)] = acc[i];
    }
    if (has_sum) {
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) acc[i] = -0.0F;  // -0 + x = x, also for +0
      add_sums(acc, sums);
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) {
        if (place.inside(p, i)) p.target.carry_out[plane + place.at(p, i)] = acc[i];
      }
    }
  } else if (has_sum) {
    add_sums(acc, sums);
  }
}

__device__ __forceinline__ void add_to_image(const Arguments& p, const Place& place,
                                             int64_t (&image)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    if (place.inside(p, i)) {
      atomicAdd(reinterpret_cast<unsigned long long*>(p.target.image + place.at(p, i)),
                static_cast<unsigned long long>(image[i]));
    }
    image[i] = 0;
  }
}

template <class C>
__device__ __forceinline__ void consume_leaves(const Arguments& p, uint32_t stages, uint32_t full,
                                               uint32_t empty, int rank) {
  const int thread = threadIdx.x - 128;
  const int lane = thread % 32;
  // The blocks of this one's row and column copied parts of its stages.
  const bool shares = lane < C::kSize &&
                      (lane / C::kColumns == rank / C::kColumns || lane % C::kColumns == rank % C::kColumns);
  Chain<C> chain{stages, full, empty, thread / 128, lane, shares ? lane : -1, Ring{}};
  Place place{0, 0};
  int last = -1;
  int64_t image[kRegisters];
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) image[i] = 0;
  float acc[kRegisters];
  for_each_leaf<C>(p, [&](int tile, const WeightGradientLeaf& leaf) {
    if (tile != last) {
      if (last >= 0) add_to_image(p, place, image);
      last = tile;
      const Corner corner = corner_of<C>(p, tile, rank);
      place.row = corner.row + thread / 32 * 16 + lane / 4;
      place.column = corner.column + 2 * (lane % 4);
    }
    leaf_chain(p, leaf, place, chain, acc);
    if (leaf.ends == 0) return;
    bool good = true;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const bool in = numerics::in_gradient_range(acc[i], p.target.bound);
      good = good && in;
      // |x| < 2^18: the product is exact, and so this is gradient_to_fixed.
      const int64_t fixed = __float2ll_rn(acc[i] * 0x1p44F);
      image[i] += in ? fixed : 0;
    }
    // Outside the matrix all operands are zeros: such elements are in range.
    if (!good) cuda::report(p.target.fault, static_cast<unsigned long long>(leaf.leaf));
  });
  if (last >= 0) add_to_image(p, place, image);
}

template <class C>
__global__ void __launch_bounds__(kProductThreads, 1)
    weight_gradient_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments p) {
  extern __shared__ uint8_t shared[];
  const uint32_t full = hopper::shared_address(shared);
  const uint32_t empty = full + 8 * kStages;
  const uint32_t stages = (full + 16 * kStages + 1023U) & ~1023U;
  const int rank = C::kSize == 1 ? 0 : static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(full + 8 * i, 1);
      hopper::barrier_init(empty + 8 * i, 8 * (C::kRows + C::kColumns - 1));
    }
    hopper::barrier_init_fence();
    hopper::prefetch_map(&maps.dy);
    hopper::prefetch_map(&maps.x);
  }
  __syncthreads();
  if constexpr (C::kSize > 1) hopper::cluster_sync();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<24>();
    if (threadIdx.x == 0) produce_leaves<C>(maps, p, stages, full, empty, rank);
  } else {
    hopper::more_registers<240>();
    consume_leaves<C>(p, stages, full, empty, rank);
  }
  if constexpr (C::kSize > 1) hopper::cluster_sync_relaxed();
}

template <class C>
void launch(const cuda::Context& context, const Maps& maps, Arguments p) {
  static const bool ready = [] {
    cuda::check(cudaFuncSetAttribute(weight_gradient_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     kSharedBytes),
                "setting the shared memory of a weight gradient");
    return true;
  }();
  (void)ready;
  const auto tiles = [](int size, int in_cluster) {
    return (size + kTile * in_cluster - 1) / (kTile * in_cluster);
  };
  p.tiles_columns = tiles(p.k, C::kColumns);
  p.tiles = tiles(p.n, C::kRows) * p.tiles_columns;
  const int grid = std::max(1, context.sms() / C::kSize) * C::kSize;
  p.sums = static_cast<float*>(context.scratch(int64_t{grid} * kTile * kTile * 4));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(kProductThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = context.stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {C::kSize, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  cuda::check(cudaLaunchKernelEx(&config, weight_gradient_kernel<C>, maps, p), "launching a weight gradient");
}

}  // namespace

void matmul_weight_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, int64_t lddy,
                                      const Bf16* x, int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                      const WeightGradientBf16& target) {
  LOCKSTEP_CHECK(lddy % 8 == 0 && ldx % 8 == 0);
  if (n == 0 || k == 0 || target.leaf_count == 0) return;
  Arguments p{};
  p.rows = static_cast<int>(rows);
  p.n = static_cast<int>(n);
  p.k = static_cast<int>(k);
  p.target = target;
  Maps maps;
  maps.dy = tensor_map(dy, rows, n, lddy, kTileDepth);
  maps.x = tensor_map(x, rows, k, ldx, kTileDepth);
  maps.dy_group = tensor_map(dy, rows, n, lddy, 16);
  maps.x_group = tensor_map(x, rows, k, ldx, 16);
  // Two blocks share the copies of the wider operand.
  if (n >= k) {
    launch<Cluster<1, 2>>(context, maps, p);
  } else {
    launch<Cluster<2, 1>>(context, maps, p);
  }
}

}  // namespace lockstep::ops
