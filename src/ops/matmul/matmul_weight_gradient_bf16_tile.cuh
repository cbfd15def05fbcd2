// SPDX-License-Identifier: Apache-2.0
// The kernel of weight gradients. The tiles' matrix is the image transposed, [k, n]: so its rows lie in
// memory one element after the other, which suits the additions. Tiles are 128 rows x kColumns columns. A
// cluster takes pairs of a tile and a leaf. One thread copies blocks of tokens into a ring of stages, two
// warpgroups multiply, 64 rows each, and three warps check and convert the results of a leaf and add them to
// the image during the chain of the next leaf. Integers add in any order, so it does not matter which block
// has which pairs.
#pragma once

#include <algorithm>

#include "device/cuda/launch.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul_product.h"
#include "ops/matmul/matmul_weight_gradient_units.cuh"

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

// Rows of the block that starts after `done` rows of a leaf: blocks end at the leaf's end and at chunks'
// ends.
template <class C>
__device__ __forceinline__ int block_rows(const Unit& leaf, int done) {
  const int chunk = static_cast<int>(numerics::kGradientChunk);
  const int to_chunk = chunk - (leaf.rows_before + done) % chunk;
  return min(min(C::kDepth, leaf.end - leaf.begin - done), to_chunk);
}

// The barriers and buffers of a block in shared memory.
template <class C>
struct GradientShared {
  uint32_t full, empty, handed, taken, units, stages;
  float* parts;

  static_assert(16 * C::kStages + 32 + Units<C>::kBytes <= kSharedSlack - 1024);

  __device__ __forceinline__ explicit GradientShared(uint8_t* shared) {
    full = hopper::shared_address(shared);
    empty = full + 8 * C::kStages;
    handed = empty + 8 * C::kStages;
    taken = handed + 16;
    units = taken + 16;
    stages = (units + Units<C>::kBytes + 1023U) & ~1023U;
    parts = reinterpret_cast<float*>(shared + (stages - full) + C::kStages * C::kStageBytes);
  }
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
  Units<C> units{shared.units};
  Unit unit = unit_at<C>(p, static_cast<int>(blockIdx.x) / C::kCluster, rank);
  units.tell(unit);
  while (unit.row >= 0) {
    const int end = unit.end - unit.begin;
    Unit next = unit;
    int done = 0, blocks = 0;
    do {
      const uint32_t stage = shared.stages + ring.stage * C::kStageBytes;
      const uint32_t barrier = shared.full + ring.stage * 8;
      const int rows = block_rows<C>(unit, done);
      const int token = unit.begin + done;
      done += rows;
      hopper::barrier_wait(shared.empty + ring.stage * 8, ring.parity ^ 1);
      hopper::barrier_expect(barrier, C::kStageBytes);
      if (rows == C::kDepth) {
        copy_shared<C, C::kAcross, C::kBoxesA>(stage, &m.a, unit.row, token, barrier, across, row_mask);
        copy_shared<C, C::kDown, C::kBoxesB>(stage + C::kBytesA, &m.b, unit.column, token, barrier, down,
                                             column_mask);
      } else {
        copy_shared_groups<C, C::kAcross, C::kBoxesA>(stage, &m.a_group, unit.row, token, rows, p.rows,
                                                      barrier, across, row_mask);
        copy_shared_groups<C, C::kDown, C::kBoxesB>(stage + C::kBytesA, &m.b_group, unit.column, token, rows,
                                                    p.rows, barrier, down, column_mask);
      }
      ring.next();
      // The next unit is asked for once, when all stages are on their way: the answer takes its time.
      if (++blocks == C::kStages || (blocks < C::kStages && done >= end)) {
        next = unit_at<C>(p, units.take(p, rank), rank);
        units.tell(next);
      }
    } while (done < end);
    unit = next;
  }
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
__device__ __forceinline__ void leaf_chain(const GradientArguments& p, const Unit& leaf, const Place& place,
                                           Chain<C>& chain, Handover<C>& handover,
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
  Units<C> units{shared.units};
  for (Unit unit = units.next(); unit.row >= 0; unit = units.next()) {
    const Place place{unit.row + thread / 32 * 16 + lane / 4, unit.column + 2 * (lane % 4)};
    leaf_chain(p, unit, place, chain, handover, acc);
    if (unit.ends == 0) {
      handover.hand_nothing();
    } else {
      handover.take(acc);
    }
  }
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
// tiles' matrix. A warp's 32 elements at a time are 32 rows: neighbours in the image. Whether all are in
// range.
template <class C>
__device__ __forceinline__ bool add_part(const GradientArguments& p, const float* part, int row, int column) {
  const int warp = threadIdx.x / 32 - 1, lane = threadIdx.x % 32;
  const int rows = p.m - row, columns = p.n - column;
  const float bound = p.target.bound;
  bool good = true;
  int64_t* to = p.target.image + row + static_cast<int64_t>(column) * p.m;
  for (int first = 4 * warp; first < C::kPartColumns; first += 12) {  // four columns at a time
    const float* from = part + first * C::kPitch + lane;
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = from[i / 2 * C::kPitch + i % 2 * 32];
    int64_t* at = to + lane + static_cast<int64_t>(first) * p.m;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool inside = lane + i % 2 * 32 < rows && first + i / 2 < columns;
      const bool in_range = numerics::in_gradient_range(values[i], bound);
      good = good && (in_range || !inside);
      // |value| < 2^18: the product is exact, and so this is gradient_to_fixed.
      add_where(inside && in_range, at + i % 2 * 32, __float2ll_rn(values[i] * 0x1p44F));
      if (i % 2 == 1) at += p.m;
    }
  }
  return good;
}

// Warps 1 to 3: add what the warpgroups hand over to the image.
template <class C>
__device__ __forceinline__ void add_leaves(const GradientArguments& p, const GradientShared<C>& shared) {
  uint32_t parity = 0;
  Units<C> units{shared.units};
  for (Unit unit = units.next(); unit.row >= 0; unit = units.next()) {
    const int parts = unit.ends == 0 ? 1 : 2;
    for (int part = 0; part < parts; ++part) {
      bool good = true;
      for (int group = 0; group < 2; ++group) {
        hopper::barrier_wait(shared.handed + 8 * group, parity);
        if (unit.ends != 0) {
          good = add_part<C>(p, shared.parts + group * (C::kPartBytes / 4), unit.row + 64 * group,
                             unit.column + part * C::kPartColumns) &&
                 good;
        }
        hopper::barrier_arrive(shared.taken + 8 * group);
      }
      if (!good) cuda::report(p.target.fault, static_cast<unsigned long long>(unit.leaf));
      parity ^= 1;
    }
  }
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
    const Units<C> units{shared.units};
    for (int i = 0; i < kUnitSlots; ++i) {
      hopper::barrier_init(units.told(i), 1);
      hopper::barrier_init(units.numbered(i), 1);
    }
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
    hopper::fewer_registers<72>();
    if (threadIdx.x >= 32) {
      add_leaves(p, shared);
    } else if (threadIdx.x == 0) {
      produce_leaves<C>(maps, p, shared, rank);
    }
  } else {
    hopper::more_registers<216>();
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
  cuda::allow_shared<weight_gradient_kernel<C>>(C::kSharedBytes, "a weight gradient");
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
