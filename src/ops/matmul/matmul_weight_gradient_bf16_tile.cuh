// SPDX-License-Identifier: Apache-2.0
// The kernel of weight gradients. The tiles' matrix is the image transposed, [k, n]: so its rows lie in
// memory one element after the other, which suits the additions. Tiles are 128 rows x kColumns columns. A
// cluster takes pairs of a tile and a leaf. One thread copies blocks of tokens into a ring of stages, two
// warpgroups multiply, 64 rows each, and three warps convert the results of a leaf and add them to the image
// during the chain of the next leaf. Integers add in any order, so it does not matter which block has which
// pairs.
#pragma once

#include <algorithm>

#include "device/cuda/launch.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul_bf16_cuda.h"
#include "ops/matmul/matmul_product.h"

namespace lockstep::ops {

// Blocks of a cluster take neighbouring tiles: kAcross of a row, which share the copies of A, kDown of a
// column, which share those of B.
template <int kColumns_, int kAcross_, int kDown_>
struct GradientTile {
  static constexpr int kColumns = kColumns_, kDepth = kTileDepth;  // tokens of a stage
  static constexpr int kAcross = kAcross_, kDown = kDown_;
  static constexpr int kCluster = kAcross * kDown;
  static constexpr int kRegisters = kColumns / 2;
  // A warpgroup hands its results over in two parts, each [kPartColumns][kPitch]: the pitch spreads columns
  // over the banks.
  static constexpr int kPartColumns = kColumns / 2, kPartRegisters = kRegisters / 2, kPitch = 68;
  static constexpr int kPartBytes = kPartColumns * kPitch * 4;
  static constexpr int kBoxBytes = kDepth * 128;
  static constexpr int kBoxesA = 2, kBoxesB = (kColumns + 63) / 64;
  static constexpr int kBytesA = kBoxesA * kBoxBytes, kStageBytes = kBytesA + kBoxesB * kBoxBytes;
  static constexpr int kStages = (kSharedLimit - kSharedSlack - 2 * kPartBytes) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * kPartBytes + kSharedSlack;
  static_assert(kColumns % 16 == 0 && kDepth % (16 * std::max(kAcross, kDown)) == 0);
};

struct GradientMaps {
  CUtensorMap a, b;              // boxes of kDepth rows over the number of blocks that share them
  CUtensorMap a_group, b_group;  // of 16
};

struct GradientArguments {
  int rows = 0;                     // tokens
  int m = 0, n = 0;                 // rows and columns of the tiles' matrix: the image is [n][m]
  int tiles_across = 0, tiles = 0;  // in clusters
  bool rows_inside = false;         // neighbouring clusters: one below the other
  WeightGradientBf16 target;
  unsigned* counter = nullptr;  // of units, 0 at the start
  float* sums = nullptr;        // [grid][128 * kColumns]: sums of whole chunks of the leaf at hand
};

// Units are pairs of a tile and a leaf. Neighbours are neighbouring tiles of a leaf, which read the same rows
// and are at work at the same time, so that these come from memory once. Bands of as many tiles as there are
// clusters, each with all its leaves, so that a tile's image stays in the L2; the last band takes the tiles
// that are left, and the leaves that may be cut, which are shorter, last.
struct Unit {
  int tile;
  WeightGradientLeaf leaf;
};
__device__ __forceinline__ Unit unit_at(const GradientArguments& p, int number, int clusters) {
  const int leaves = p.target.leaf_count;
  const int bands = max(1, p.tiles / clusters);
  const int band = min(number / (clusters * leaves), bands - 1);
  const int width = band == bands - 1 ? p.tiles - band * clusters : clusters;
  const int inside = number - band * clusters * leaves;
  int leaf = inside / width;
  if (leaves > 2) leaf = leaf < leaves - 2 ? leaf + 1 : (leaf == leaves - 2 ? 0 : leaves - 1);
  return {band * clusters + inside % width, p.target.leaves[leaf]};
}

// Clusters take units from a counter. The producer of the first block of a cluster takes the next unit's
// number when it begins one and tells all blocks; every role of a block reads the same numbers, -1 last. The
// ring is longer than one role can be ahead of another (by the stages and two units), so that no number is
// overwritten before it was read.
template <class C>
struct Units {
  static constexpr int kSlots = 16;
  static_assert(C::kStages + 4 <= kSlots);
  uint32_t slots, barriers;
  int at = 0;

  __device__ __forceinline__ void arm(int number) const {
    if constexpr (C::kCluster > 1) hopper::barrier_expect(barriers + 8 * (number % kSlots), 4);
  }
  __device__ __forceinline__ void tell(int number, int unit) const {
    if constexpr (C::kCluster == 1) {
      asm volatile("st.shared.s32 [%0], %1;" ::"r"(slots + 4 * (number % kSlots)), "r"(unit) : "memory");
      hopper::barrier_arrive(barriers + 8 * (number % kSlots));
    } else {
      for (int rank = 0; rank < C::kCluster; ++rank)
        hopper::store_remote(slots + 4 * (number % kSlots), unit, barriers + 8 * (number % kSlots),
                             static_cast<uint32_t>(rank));
    }
  }
  __device__ __forceinline__ int next() {
    const int slot = at % kSlots;
    hopper::barrier_wait(barriers + 8 * slot, at / kSlots % 2);
    ++at;
    int unit;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(unit) : "r"(slots + 4 * slot) : "memory");
    return unit;
  }
};
// Calls visit(tile, leaf) for the units of this cluster, in order.
template <class C, class Visit>
__device__ __forceinline__ void for_each_unit(const GradientArguments& p, Units<C> units,
                                              const Visit& visit) {
  for (int number = units.next(); number >= 0; number = units.next()) {
    const Unit unit = unit_at(p, number, static_cast<int>(gridDim.x) / C::kCluster);
    visit(unit.tile, unit.leaf);
  }
}
// The same for a block's producer, which also takes the numbers.
template <class C, class Visit>
__device__ __forceinline__ void produce_units(const GradientArguments& p, Units<C> units, int rank,
                                              const Visit& visit) {
  const int clusters = static_cast<int>(gridDim.x) / C::kCluster;
  const int cluster = static_cast<int>(blockIdx.x) / C::kCluster;
  const int count = p.tiles * p.target.leaf_count;
  units.arm(0);
  if (rank == 0) units.tell(0, cluster < count ? cluster : -1);
  while (true) {
    const int number = units.next();
    if (number < 0) return;
    units.arm(units.at);
    if (rank == 0) {
      const int next = clusters + static_cast<int>(atomicAdd(p.counter, 1U));
      units.tell(units.at, next < count ? next : -1);
    }
    const Unit unit = unit_at(p, number, clusters);
    visit(unit.tile, unit.leaf);
  }
}

// Rows of the block that starts after `done` rows of a leaf: blocks end at the leaf's end and at chunks'
// ends.
template <class C>
__device__ __forceinline__ int block_rows(const WeightGradientLeaf& leaf, int done) {
  const int chunk = static_cast<int>(numerics::kGradientChunk);
  const int to_chunk = chunk - (leaf.rows_before + done) % chunk;
  return min(min(C::kDepth, leaf.end - leaf.begin - done), to_chunk);
}

// Rows and columns of a block's tile.
struct Corner {
  int row, column;
};
template <class C>
__device__ __forceinline__ Corner corner_of(const GradientArguments& p, int tile, int rank) {
  const int tiles_down = p.tiles / p.tiles_across;
  const int row = p.rows_inside ? tile % tiles_down : tile / p.tiles_across;
  const int column = p.rows_inside ? tile / tiles_down : tile % p.tiles_across;
  return {(row * C::kDown + rank / C::kAcross) * kTileRows,
          (column * C::kAcross + rank % C::kAcross) * C::kColumns};
}

// The barriers and buffers of a block in shared memory.
template <class C>
struct GradientShared {
  uint32_t full, empty, handed, taken, numbers, stages;
  float* parts;

  __device__ __forceinline__ explicit GradientShared(uint8_t* shared) {
    full = hopper::shared_address(shared);
    empty = full + 8 * C::kStages;
    handed = empty + 8 * C::kStages;
    taken = handed + 16;
    numbers = taken + 16;
    stages = (numbers + 12 * Units<C>::kSlots + 1023U) & ~1023U;
    parts = reinterpret_cast<float*>(shared + (stages - full) + C::kStages * C::kStageBytes);
  }
  __device__ __forceinline__ Units<C> units() const { return {numbers + 8 * Units<C>::kSlots, numbers}; }
};

// Rows [token, token + kDepth) of kBoxes boxes of an operand that kSharers blocks use: block number `number`
// of them copies its part of the rows, for all of mask.
template <class C, int kSharers, int kBoxes>
__device__ __forceinline__ void copy_shared(uint32_t to, const CUtensorMap* map, int column, int token,
                                            uint32_t barrier, int number, uint32_t mask) {
  const int first = C::kDepth / kSharers * number;
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    if constexpr (kSharers == 1) {
      hopper::copy_box(to + box * C::kBoxBytes, map, column + box * 64, token, barrier);
    } else {
      hopper::copy_box_multicast(to + box * C::kBoxBytes + first * 128, map, column + box * 64, token + first,
                                 barrier, static_cast<uint16_t>(mask));
    }
  }
}
// The same for a block of `rows` < kDepth rows, in groups of 16; those that are not the leaf's come from
// behind the last row: zeros.
template <class C, int kSharers, int kBoxes>
__device__ __forceinline__ void copy_shared_groups(uint32_t to, const CUtensorMap* map, int column, int token,
                                                   int rows, int behind, uint32_t barrier, int number,
                                                   uint32_t mask) {
  constexpr int kGroups = C::kDepth / 16 / kSharers;
  for (int group = kGroups * number; group < kGroups * (number + 1); ++group) {
    const int from = 16 * group < rows ? token + 16 * group : behind;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const uint32_t at = to + box * C::kBoxBytes + group * 2048;
      if constexpr (kSharers == 1) {
        hopper::copy_box(at, map, column + box * 64, from, barrier);
      } else {
        hopper::copy_box_multicast(at, map, column + box * 64, from, barrier, static_cast<uint16_t>(mask));
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void produce_leaves(const GradientMaps& m, const GradientArguments& p,
                                               const GradientShared<C>& shared, int rank) {
  const int down = rank / C::kAcross, across = rank % C::kAcross;
  const uint32_t row_mask = ((1U << C::kAcross) - 1) << (down * C::kAcross);
  uint32_t column_mask = 0;
  for (int i = 0; i < C::kDown; ++i) column_mask |= 1U << (i * C::kAcross + across);
  hopper::Ring<C::kStages> ring;
  produce_units<C>(p, shared.units(), rank, [&](int tile, const WeightGradientLeaf& leaf) {
    const Corner corner = corner_of<C>(p, tile, rank);
    int done = 0;
    do {
      const uint32_t stage = shared.stages + ring.stage * C::kStageBytes;
      const uint32_t barrier = shared.full + ring.stage * 8;
      const int rows = block_rows<C>(leaf, done);
      const int token = leaf.begin + done;
      done += rows;
      hopper::barrier_wait(shared.empty + ring.stage * 8, ring.parity ^ 1);
      hopper::barrier_expect(barrier, C::kStageBytes);
      if (rows == C::kDepth) {
        copy_shared<C, C::kAcross, C::kBoxesA>(stage, &m.a, corner.row, token, barrier, across, row_mask);
        copy_shared<C, C::kDown, C::kBoxesB>(stage + C::kBytesA, &m.b, corner.column, token, barrier, down,
                                             column_mask);
      } else {
        copy_shared_groups<C, C::kAcross, C::kBoxesA>(stage, &m.a_group, corner.row, token, rows, p.rows,
                                                      barrier, across, row_mask);
        copy_shared_groups<C, C::kDown, C::kBoxesB>(stage + C::kBytesA, &m.b_group, corner.column, token,
                                                    rows, p.rows, barrier, down, column_mask);
      }
      ring.next();
    } while (done < leaf.end - leaf.begin);
  });
}

// Where a thread's elements are: rows row and row + 8, columns column + 8 i and + 1.
struct Place {
  int row, column;
};
// Calls visit(i, offset in the image) for the thread's elements that are inside the matrix.
template <int kRegisters, class Visit>
__device__ __forceinline__ void for_each_inside(const GradientArguments& p, const Place& place,
                                                const Visit& visit) {
  int64_t at = place.row + static_cast<int64_t>(place.column) * p.m;
  const bool upper_inside = place.row < p.m, lower_inside = place.row + 8 < p.m;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 4) {
    asm volatile("" : "+l"(at));  // no addresses ahead of their use: registers are few
    const int column = place.column + 2 * i;
    if (column < p.n) {
      if (upper_inside) visit(i, at);
      if (lower_inside) visit(i + 2, at + 8);
    }
    if (column + 1 < p.n) {
      if (upper_inside) visit(i + 1, at + p.m);
      if (lower_inside) visit(i + 3, at + p.m + 8);
    }
    at += 8 * int64_t{p.m};
  }
}

// A warpgroup's place in shared memory for a part of its results, and the results that wait in registers for
// it: the second part is handed over during the next leaf's chain.
template <class C>
struct Handover {
  float* part;
  uint32_t handed, taken;  // barriers
  uint32_t parity = 1;     // of `taken`
  bool waits = false;
  float waiting[C::kPartRegisters];

  __device__ __forceinline__ void wait_taken() {
    hopper::barrier_wait(taken, parity);
    parity ^= 1;
  }
  __device__ __forceinline__ void hand(const float (&values)[C::kPartRegisters]) {
    wait_taken();
    const int thread = threadIdx.x % 128, lane = thread % 32;
    float* to = part + 2 * (lane % 4) * C::kPitch + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < C::kPartRegisters; ++i)
      to[(8 * (i / 4) + i % 2) * C::kPitch + 8 * (i / 2 % 2)] = values[i];
    hopper::barrier_arrive(handed);
  }
  __device__ __forceinline__ void hand_waiting() {
    if (waits) hand(waiting);
    waits = false;
  }
  // A leaf that is cut has nothing for the image: an empty part, so that no role gets far ahead of another.
  __device__ __forceinline__ void hand_nothing() {
    wait_taken();
    hopper::barrier_arrive(handed);
  }
  __device__ __forceinline__ void take(const float (&acc)[C::kRegisters]) {
    float first[C::kPartRegisters];
#pragma unroll
    for (int i = 0; i < C::kPartRegisters; ++i) first[i] = acc[i];
    hand(first);
#pragma unroll
    for (int i = 0; i < C::kPartRegisters; ++i) waiting[i] = acc[C::kPartRegisters + i];
    waits = true;
  }
};

template <class C>
struct Chain {
  uint32_t stages, full, empty;
  int group, lane;
  int target;  // block that this lane tells of a free stage; -1: none
  hopper::Ring<C::kStages> ring;

  __device__ __forceinline__ void release(uint32_t stage) const {
    if constexpr (C::kCluster == 1) {
      if (lane == 0) hopper::barrier_arrive(empty + stage * 8);
    } else {
      if (target >= 0) hopper::barrier_arrive_remote(empty + stage * 8, static_cast<uint32_t>(target));
    }
  }

  // acc goes on over `blocks` blocks, one at least. After block number hand_at what waits is handed over.
  __device__ __forceinline__ void run(float (&acc)[C::kRegisters], int blocks, Handover<C>& handover,
                                      int hand_at) {
    hopper::pin(acc);
    uint32_t before = 0;
    int block = 0;
    do {
      hopper::barrier_wait(full + ring.stage * 8, ring.parity);
      const uint32_t at = stages + ring.stage * C::kStageBytes;
      const uint64_t a = hopper::descriptor_k_outer(at + group * C::kBoxBytes);
      const uint64_t b = hopper::descriptor_k_outer(at + C::kBytesA);
      hopper::wgmma_fence();
#pragma unroll
      for (int step = 0; step < C::kDepth / 16; ++step)
        hopper::wgmma<true, true>(acc, a + step * 128, b + step * 128, true);
      hopper::wgmma_commit();
      hopper::wgmma_wait<1>();
      if (block != 0) release(before);
      if (block == hand_at) handover.hand_waiting();
      before = ring.stage;
      ring.next();
    } while (++block < blocks);
    hopper::wgmma_wait<0>();
    hopper::pin(acc);
    release(before);
  }
};

template <int kRegisters>
__device__ __forceinline__ void set_all(float (&acc)[kRegisters], float value) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) acc[i] = value;
}

// A leaf's chain, from carry_in or +0. Afterwards acc is the result, or, when the leaf is cut here, was
// stored.
template <class C>
__device__ __forceinline__ void leaf_chain(const GradientArguments& p, const WeightGradientLeaf& leaf,
                                           const Place& place, Chain<C>& chain, Handover<C>& handover,
                                           float (&acc)[C::kRegisters]) {
  const int chunk = static_cast<int>(numerics::kGradientChunk);
  float4* sums = reinterpret_cast<float4*>(p.sums) +
                 static_cast<int64_t>(blockIdx.x) * (kTileRows * C::kColumns / 4) + (threadIdx.x - 128);
  const int64_t plane = static_cast<int64_t>(p.m) * p.n;
  const int rows = leaf.end - leaf.begin;
  bool has_sum = leaf.rows_before > chunk;
  if (leaf.begins == 0 && has_sum) {
    set_all(acc, 0.0F);
    for_each_inside<C::kRegisters>(p, place,
                                   [&](int i, int64_t at) { acc[i] = p.target.carry_in[plane + at]; });
    keep_sums(acc, sums);
  }
  set_all(acc, 0.0F);
  if (leaf.begins == 0)
    for_each_inside<C::kRegisters>(p, place, [&](int i, int64_t at) { acc[i] = p.target.carry_in[at]; });
  int done = 0;
  do {  // an empty leaf has one block, of zeros
    const int position = leaf.rows_before + done;
    if (rows > 0 && position > 0 && position % chunk == 0) {  // a whole chunk lies behind: fold it
      if (has_sum) add_sums(acc, sums);
      keep_sums(acc, sums);
      has_sum = true;
      set_all(acc, 0.0F);
    }
    const int part = min(rows - done, chunk - position % chunk);
    const int blocks = max(1, (part + C::kDepth - 1) / C::kDepth);
    chain.run(acc, blocks, handover, done == 0 ? blocks / 2 : -1);
    done += part;
  } while (done < rows);
  if (leaf.ends == 0) {
    for_each_inside<C::kRegisters>(p, place, [&](int i, int64_t at) { p.target.carry_out[at] = acc[i]; });
    if (has_sum) {
      set_all(acc, -0.0F);  // -0 + x = x, also for +0
      add_sums(acc, sums);
      for_each_inside<C::kRegisters>(p, place,
                                     [&](int i, int64_t at) { p.target.carry_out[plane + at] = acc[i]; });
    }
  } else if (has_sum) {
    add_sums(acc, sums);
  }
}

template <class C>
__device__ __forceinline__ void consume_leaves(const GradientArguments& p, const GradientShared<C>& shared,
                                               int rank) {
  const int thread = threadIdx.x - 128;
  const int lane = thread % 32;
  // The blocks of this one's row and column copied parts of its stages.
  const bool shares = lane < C::kCluster &&
                      (lane / C::kAcross == rank / C::kAcross || lane % C::kAcross == rank % C::kAcross);
  const int group = thread / 128;
  Chain<C> chain{shared.stages, shared.full, shared.empty, group, lane, shares ? lane : -1, {}};
  Handover<C> handover{shared.parts + group * (C::kPartBytes / 4), shared.handed + 8 * group,
                       shared.taken + 8 * group};
  float acc[C::kRegisters];
  for_each_unit<C>(p, shared.units(), [&](int tile, const WeightGradientLeaf& leaf) {
    const Corner corner = corner_of<C>(p, tile, rank);
    const Place place{corner.row + thread / 32 * 16 + lane / 4, corner.column + 2 * (lane % 4)};
    leaf_chain(p, leaf, place, chain, handover, acc);
    if (leaf.ends == 0) {
      handover.hand_nothing();
      return;
    }
    bool good = true;
#pragma unroll
    for (int i = 0; i < C::kRegisters; ++i)
      good = good && numerics::in_gradient_range(acc[i], p.target.bound);
    // An element outside the matrix is out of range only where one inside is, too: its operands are zeros or
    // those of an infinity or NaN.
    if (!good) cuda::report(p.target.fault, static_cast<unsigned long long>(leaf.leaf));
    handover.take(acc);
  });
  handover.hand_waiting();
}

// atomicAdd(to, value) where `adds`, without a branch.
__device__ __forceinline__ void add_where(bool adds, int64_t* to, int64_t value) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p red.relaxed.gpu.global.add.u64 [%0], %1;\n}" ::"l"(to),
      "l"(value), "r"(adds ? 1 : 0)
      : "memory");
}

// Adds a part of a warpgroup's results to the image. `row` and `column`: the part's first element in the
// tiles' matrix. A warp's 32 elements at a time are 32 rows: neighbours in the image.
template <class C>
__device__ __forceinline__ void add_part(const GradientArguments& p, const float* part, int row, int column) {
  const int warp = threadIdx.x / 32 - 1, lane = threadIdx.x % 32;
  const int rows = p.m - row, columns = p.n - column;
  const float bound = p.target.bound;
  int64_t* to = p.target.image + row + static_cast<int64_t>(column) * p.m;
  for (int first = 4 * warp; first < C::kPartColumns; first += 12) {  // four columns at a time
    const float* from = part + first * C::kPitch + lane;
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = from[i / 2 * C::kPitch + i % 2 * 32];
    int64_t* at = to + lane + static_cast<int64_t>(first) * p.m;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool adds = lane + i % 2 * 32 < rows && first + i / 2 < columns &&
                        numerics::in_gradient_range(values[i], bound);
      // |value| < 2^18: the product is exact, and so this is gradient_to_fixed.
      add_where(adds, at + i % 2 * 32, __float2ll_rn(values[i] * 0x1p44F));
      if (i % 2 == 1) at += p.m;
    }
  }
}

// Warps 1 to 3: add what the warpgroups hand over to the image.
template <class C>
__device__ __forceinline__ void add_leaves(const GradientArguments& p, const GradientShared<C>& shared,
                                           int rank) {
  uint32_t parity = 0;
  for_each_unit<C>(p, shared.units(), [&](int tile, const WeightGradientLeaf& leaf) {
    const Corner corner = corner_of<C>(p, tile, rank);
    const int parts = leaf.ends == 0 ? 1 : 2;
    for (int part = 0; part < parts; ++part) {
      for (int group = 0; group < 2; ++group) {
        hopper::barrier_wait(shared.handed + 8 * group, parity);
        if (leaf.ends != 0) {
          add_part<C>(p, shared.parts + group * (C::kPartBytes / 4), corner.row + 64 * group,
                      corner.column + part * C::kPartColumns);
        }
        hopper::barrier_arrive(shared.taken + 8 * group);
      }
      parity ^= 1;
    }
  });
}

template <class C>
__global__ void __launch_bounds__(kProductThreads, 1)
    weight_gradient_kernel(const __grid_constant__ GradientMaps maps,
                           const __grid_constant__ GradientArguments p) {
  extern __shared__ uint8_t memory[];
  const GradientShared<C> shared(memory);
  const int rank = C::kCluster == 1 ? 0 : static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      hopper::barrier_init(shared.full + 8 * i, 1);
      hopper::barrier_init(shared.empty + 8 * i, 8 * (C::kDown + C::kAcross - 1));
    }
    for (int i = 0; i < Units<C>::kSlots; ++i) hopper::barrier_init(shared.numbers + 8 * i, 1);
    for (int group = 0; group < 2; ++group) {
      hopper::barrier_init(shared.handed + 8 * group, 128);
      hopper::barrier_init(shared.taken + 8 * group, 96);
    }
    hopper::barrier_init_fence();
    hopper::prefetch_map(&maps.a);
    hopper::prefetch_map(&maps.b);
  }
  __syncthreads();
  if constexpr (C::kCluster > 1) hopper::cluster_sync();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<40>();
    if (threadIdx.x >= 32) {
      add_leaves(p, shared, rank);
    } else if (threadIdx.x == 0) {
      produce_leaves<C>(maps, p, shared, rank);
    }
  } else {
    hopper::more_registers<232>();
    consume_leaves(p, shared, rank);
  }
  // No block of the cluster may leave while another still copies into it or arrives at its barriers.
  if constexpr (C::kCluster > 1) hopper::cluster_sync_relaxed();
}

struct GradientOperands {
  const Bf16* dy;
  int64_t lddy;
  const Bf16* x;
  int64_t ldx;
  int64_t rows, n, k;
};

template <class C>
void launch_weight_gradient(const cuda::Context& context, const GradientOperands& o,
                            const WeightGradientBf16& target) {
  static const bool ready = [] {
    cuda::check(cudaFuncSetAttribute(weight_gradient_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     C::kSharedBytes),
                "setting the shared memory of a weight gradient");
    return true;
  }();
  (void)ready;
  const auto tiles = [](int64_t size, int in_cluster) {
    return static_cast<int>((size + in_cluster - 1) / in_cluster);
  };
  GradientArguments p;
  p.rows = static_cast<int>(o.rows);
  p.m = static_cast<int>(o.k);
  p.n = static_cast<int>(o.n);
  p.target = target;
  p.tiles_across = tiles(p.n, C::kColumns * C::kAcross);
  const int tiles_down = tiles(p.m, kTileRows * C::kDown);
  p.tiles = tiles_down * p.tiles_across;
  p.rows_inside = tiles_down < p.tiles_across;
  GradientMaps maps;
  maps.a = tensor_map(o.x, o.rows, o.k, o.ldx, C::kDepth / C::kAcross);
  maps.b = tensor_map(o.dy, o.rows, o.n, o.lddy, C::kDepth / C::kDown);
  maps.a_group = tensor_map(o.x, o.rows, o.k, o.ldx, 16);
  maps.b_group = tensor_map(o.dy, o.rows, o.n, o.lddy, 16);
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(kProductThreads);
  config.dynamicSmemBytes = C::kSharedBytes;
  config.stream = context.stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {C::kCluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  const int grid = std::max(1, context.sms() / C::kCluster) * C::kCluster;
  const int64_t sums_bytes = int64_t{grid} * kTileRows * C::kColumns * 4;
  char* scratch = static_cast<char*>(context.scratch(sums_bytes + 4));
  p.sums = reinterpret_cast<float*>(scratch);
  p.counter = reinterpret_cast<unsigned*>(scratch + sums_bytes);
  cuda::check(cudaMemsetAsync(p.counter, 0, 4, context.stream()), "clearing a counter");
  config.gridDim = dim3(static_cast<unsigned>(grid));
  cuda::check(cudaLaunchKernelEx(&config, weight_gradient_kernel<C>, maps, p), "launching a weight gradient");
}

}  // namespace lockstep::ops
