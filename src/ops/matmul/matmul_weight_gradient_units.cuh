// SPDX-License-Identifier: Apache-2.0
// The units of work of a weight gradient, pairs of a tile and a leaf, and how the blocks of a GPU get them.
#pragma once

#include <cstdint>

#include "ops/matmul/matmul_bf16_cuda.h"
#include "ops/matmul/matmul_hopper.h"
#include "ops/matmul/matmul_product.h"

namespace lockstep::ops {

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
  int row, column;  // of the block's tile; row -1: there are no more units
  int begin, end, rows_before, begins, ends, leaf;
};
template <class C>
__device__ __forceinline__ Unit unit_at(const GradientArguments& p, int number, int rank) {
  const int clusters = static_cast<int>(gridDim.x) / C::kCluster;
  const int leaves = p.target.leaf_count;
  if (number >= p.tiles * leaves) return {-1, 0, 0, 0, 0, 0, 0, 0};
  const int bands = max(1, p.tiles / clusters);
  const int band = min(number / (clusters * leaves), bands - 1);
  const int width = band == bands - 1 ? p.tiles - band * clusters : clusters;
  const int inside = number - band * clusters * leaves;
  int at = inside / width;
  if (leaves > 2) at = at < leaves - 2 ? at + 1 : (at == leaves - 2 ? 0 : leaves - 1);
  const int tile = band * clusters + inside % width;
  const int tiles_down = p.tiles / p.tiles_across;
  const int row = p.rows_inside ? tile % tiles_down : tile / p.tiles_across;
  const int column = p.rows_inside ? tile / tiles_down : tile % p.tiles_across;
  const WeightGradientLeaf leaf = p.target.leaves[at];
  return {(row * C::kDown + rank / C::kAcross) * kTileRows,
          (column * C::kAcross + rank % C::kAcross) * C::kColumns,
          leaf.begin,
          leaf.end,
          leaf.rows_before,
          leaf.begins,
          leaf.ends,
          leaf.leaf};
}

// Clusters take units' numbers from a counter: the producer of a cluster's first block for all of them, long
// before the unit begins. Each block's producer works out its unit and writes it where the multiplying warps
// read it; the one with row -1 comes last. The ring is longer than one role can be ahead of another (by the
// stages and two units), so that nothing is overwritten before it was read.
inline constexpr int kUnitSlots = 16;
template <class C>
struct Units {
  static constexpr int kBytes = kUnitSlots * (32 + 4 + 8 + 8);
  static_assert(C::kStages + 4 <= kUnitSlots);
  uint32_t units;  // kUnitSlots units, numbers, barriers of the units and of the numbers
  int at = 0;      // units told or read
  int taken = 0;   // numbers

  __device__ __forceinline__ uint32_t number_at(int slot) const { return units + 32 * kUnitSlots + 4 * slot; }
  __device__ __forceinline__ uint32_t told(int slot) const { return units + 36 * kUnitSlots + 8 * slot; }
  __device__ __forceinline__ uint32_t numbered(int slot) const { return told(kUnitSlots + slot); }

  // The producer's: the number of the cluster's next unit.
  __device__ __forceinline__ int take(const GradientArguments& p, int rank) {
    int number = static_cast<int>(gridDim.x) / C::kCluster;
    if (rank == 0) number += static_cast<int>(atomicAdd(p.counter, 1U));
    if constexpr (C::kCluster > 1) {
      const int slot = taken % kUnitSlots;
      hopper::barrier_expect(numbered(slot), 4);
      for (int to = 0; rank == 0 && to < C::kCluster; ++to)
        hopper::store_remote(number_at(slot), number, numbered(slot), static_cast<uint32_t>(to));
      hopper::barrier_wait(numbered(slot), taken / kUnitSlots % 2);
      ++taken;
      asm volatile("ld.shared.s32 %0, [%1];" : "=r"(number) : "r"(number_at(slot)) : "memory");
    }
    return number;
  }
  __device__ __forceinline__ void tell(const Unit& u) {
    const int slot = at++ % kUnitSlots;
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(units + 32 * slot), "r"(u.row),
                 "r"(u.column), "r"(u.begin), "r"(u.end)
                 : "memory");
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(units + 32 * slot + 16), "r"(u.rows_before),
                 "r"(u.begins), "r"(u.ends), "r"(u.leaf)
                 : "memory");
    hopper::barrier_arrive(told(slot));
  }
  __device__ __forceinline__ Unit next() {
    const int slot = at % kUnitSlots;
    hopper::barrier_wait(told(slot), at / kUnitSlots % 2);
    ++at;
    Unit u;
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(u.row), "=r"(u.column), "=r"(u.begin), "=r"(u.end)
                 : "r"(units + 32 * slot)
                 : "memory");
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(u.rows_before), "=r"(u.begins), "=r"(u.ends), "=r"(u.leaf)
                 : "r"(units + 32 * slot + 16)
                 : "memory");
    return u;
  }
};

}  // namespace lockstep::ops
