// SPDX-License-Identifier: Apache-2.0
// Result tiles on their way to memory: the warpgroups that multiply write rounded boxes of 64 rows to shared
// memory and go on; a thread for each of them has the copy engine store the boxes. Boxes of a residual come
// in by the same places. Rows of a box are 128 or 64 bytes, swizzled as the copy engine does.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/matmul/matmul_epilogue.h"
#include "ops/matmul/matmul_hopper.h"

namespace lockstep::ops {
namespace hopper {

// Stores the box to (column, row); what lies outside the matrix is left out, in units of 16 bytes.
__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(from), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// All but the last kPending groups of this thread have read their shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Four 8 x 8 matrices of bfloat16; lane l has the address of row l % 8 of matrix l / 8 and of matrix j the
// two elements of row l / 4, columns 2 * (l % 4).
__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]),
               "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&v)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_two_floats(uint32_t address, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ void load_words(uint32_t address, uint32_t (&v)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ float load_float(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint16_t load_half_word(uint32_t address) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
  return v;
}

}  // namespace hopper

// Places of boxes of one multiplying warpgroup. filled: the box may be stored; ready: the place may be
// written (or the residual's box has come).
struct Places {
  uint32_t boxes = 0, filled = 0, ready = 0;
};

// P (matmul_product.h) gives kBoxes a tile, kPlaces, kBoxRowBytes, kBoxBytes and the kind of result.

// Columns of box b of a tile in registers of four: kSwiglu alternates boxes of gate and of up.
template <class P>
__device__ __forceinline__ constexpr int first_register(int box) {
  constexpr int kOfBox = P::kBoxColumns / 2;
  if (P::kPaired) return (box % 2) * (P::kColumns / 4) + box / 2 * kOfBox;
  return box * kOfBox;
}

// Rounds d, after adding it to what lies there if P is kResidual, and writes box b.
template <class P, int kRegisters>
__device__ __forceinline__ void write_bf16_box(const float (&d)[kRegisters], int box, uint32_t at, int warp,
                                               int lane) {
  const int line = lane % 8;
  const int row = 16 * warp + lane / 8 % 2 * 8 + line;
  const int swizzle = P::kBoxRowBytes == 128 ? line : line / 2;
  const uint32_t to = at + row * P::kBoxRowBytes + ((lane / 16) ^ swizzle) * 16;
#pragma unroll
  for (int pair = 0; pair < P::kBoxColumns / 16; ++pair) {
    const float* from = d + first_register<P>(box) + 8 * pair;
    uint32_t v[4];
    if constexpr (P::kOutput == MatmulOutput::kResidual) {
      hopper::load_matrices(to ^ (pair * 32), v);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        v[j] = pack_bf16(low_bf16(v[j]) + from[2 * j], high_bf16(v[j]) + from[2 * j + 1]);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = pack_bf16(from[2 * j], from[2 * j + 1]);
    }
    hopper::store_matrices(to ^ (pair * 32), v);
  }
}

// 32 columns of binary32. Odd rows write their groups of eight columns in another order: no two lanes of a
// half warp meet in a bank.
template <class P, int kRegisters>
__device__ __forceinline__ void write_float_box(const float (&d)[kRegisters], int box, uint32_t at, int warp,
                                                int lane) {
  const int line = lane / 4;
  const bool odd = line % 2 != 0;
  const uint32_t to = at + (16 * warp + line) * 128 + lane % 2 * 8;
  const uint32_t first = to + (((odd ? 4 : 0) + lane / 2 % 2) ^ line) * 16;
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    const float* low = d + 16 * box + 4 * group;
    const float* high = low + 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t place = (first ^ (group * 32)) + h * 1024;
      hopper::store_two_floats(place, odd ? high[2 * h] : low[2 * h], odd ? high[2 * h + 1] : low[2 * h + 1]);
      hopper::store_two_floats(place ^ 64, odd ? low[2 * h] : high[2 * h],
                               odd ? low[2 * h + 1] : high[2 * h + 1]);
    }
  }
}

// The multiplying warpgroup: all boxes of its 64 rows.
template <class P, int kRegisters>
__device__ __forceinline__ void write_boxes(const float (&d)[kRegisters], const Places& places,
                                            hopper::Ring<P::kPlaces>& ring, int warp, int lane) {
  constexpr uint32_t kFirst = P::kOutput == MatmulOutput::kResidual ? 0 : 1;  // places start empty
#pragma unroll
  for (int box = 0; box < P::kBoxes; ++box, ring.next()) {
    hopper::barrier_wait(places.ready + ring.stage * 8, ring.parity ^ kFirst);
    const uint32_t at = places.boxes + ring.stage * P::kBoxBytes;
    if constexpr (P::kOutput == MatmulOutput::kFloat) {
      write_float_box<P>(d, box, at, warp, lane);
    } else {
      write_bf16_box<P>(d, box, at, warp, lane);
    }
    hopper::fence_async();
    // Every lane: as fast as one for its warp, and compute-sanitizer's racecheck follows it.
    hopper::barrier_arrive(places.filled + ring.stage * 8);
  }
}

// First column of box b of a tile in the matrix that it is stored to.
template <class P>
__device__ __forceinline__ int box_column(int tile_column, int box) {
  return tile_column * P::kResultColumns + (P::kPaired ? box / 2 : box) * P::kBoxColumns;
}

// Columns of the box after the last whole granule, which the copy engine would store with what follows them.
template <class P>
__device__ __forceinline__ void store_last_columns(const EpilogueArguments& e, uint32_t at, int column,
                                                   int row) {
  const int from = max(e.n / P::kGranule * P::kGranule - column, 0);
  const int to = min(e.n - column, P::kBoxColumns);
#pragma unroll 1
  for (int i = 0; i < 64 && row + i < e.m; ++i) {
#pragma unroll 1
    for (int j = from; j < to; ++j) {
      const int64_t index = (row + i) * e.ld_out + column + j;
      if constexpr (P::kIsFloat) {
        static_cast<float*>(e.out)[index] = hopper::load_float(at + (i * 128 + ((j * 4) ^ (i % 8 * 16))));
      } else {
        const int swizzle = P::kBoxRowBytes == 128 ? i % 8 : i / 2 % 4;
        static_cast<Bf16*>(e.out)[index] =
            hopper::load_half_word(at + (i * P::kBoxRowBytes + ((j * 2) ^ (swizzle * 16))));
      }
    }
  }
}

// The residual's box comes to the place.
template <class P>
__device__ __forceinline__ void load_residual(const CUtensorMap* map, const Places& places, int place,
                                              int column, int row) {
  hopper::barrier_expect(places.ready + place * 8, P::kBoxBytes);
  hopper::copy_box(places.boxes + place * P::kBoxBytes, map, column, row, places.ready + place * 8);
}

// act of a box of gate and one of up: a warp takes every kActivatingWarps-th group of rows from `turn` on.
inline constexpr int kActivatingWarps = 3;
template <class P>
__device__ __forceinline__ void activate_boxes(const EpilogueArguments& e, uint32_t gate_box, uint32_t up_box,
                                               int tile_row, int tile_column, int turn, int lane) {
  constexpr int kChunks = P::kBoxRowBytes / 16;
  constexpr int kLines = 32 / kChunks;  // rows a step
  const int column = tile_column + lane % kChunks * 8;
#pragma unroll 1
  for (int step = turn; step < 64 / kLines; step += kActivatingWarps) {
    const int row = step * kLines + lane / kChunks;
    const int swizzle = P::kBoxRowBytes == 128 ? row % 8 : row / 2 % 4;
    const uint32_t at = row * P::kBoxRowBytes + ((lane % kChunks) ^ swizzle) * 16;
    uint32_t gate[4], up[4], act[4];
    hopper::load_words(gate_box + at, gate);
    hopper::load_words(up_box + at, up);
    swiglu_words(gate, up, act);
    if (tile_row + row < e.m && column < e.n) {
      *reinterpret_cast<uint4*>(e.act + static_cast<int64_t>(tile_row + row) * e.ld_act + column) =
          make_uint4(act[0], act[1], act[2], act[3]);
    }
  }
}

}  // namespace lockstep::ops
