// SPDX-License-Identifier: Apache-2.0
// The tiles of keys and values that attention_decode_bf16_stream.cuh takes: a ring in shared memory, filled
// by the copy engine in the order of use. Each warp that computes waits for every tile of values: a barrier
// may be no more than one fill ahead of who waits for it.
#pragma once

#include <cuda.h>

#include "device/cuda/copy_engine.cuh"
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_bf16_tiles.cuh"

namespace lockstep::ops::attention {

struct DecodeArguments {
  KvPagesCuda pages;
  const Bf16* q;
  const int32_t* sequence;
  const int32_t* keys;
  FreshKeysCuda fresh;
  Bf16* out;
  float* partial;  // [row][head][segment][2 + d]: M, l, o
  int64_t ldq, ldo;
  int64_t page_rows, k_row, v_row;  // page_stride, k_offset, v_offset in rows of d
  int heads, kv_heads, d, head_tiles, segment_blocks, max_segments, round_blocks;
  float scale;
  bool vector;
  cuda::Fault fault;
};

__device__ __forceinline__ void mma_small(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

namespace stream {

namespace hopper = cuda::hopper;

constexpr int kWarps = 4;  // that compute
constexpr int kRound = 4;  // blocks of keys at a time, one a warp
constexpr int kThreads = kWarps * 32 + 32;
constexpr int kHeads = 8;
constexpr int kWeightBytes = 1024;           // of a block, bfloat16, as operands
constexpr int kTermBytes = 64 * kHeads * 4;  // of a block, unrounded

// kPanels: of 64 columns. kSlots: tiles in the ring.
template <int kPanels_, int kSlots_>
struct Plan {
  static constexpr int kPanels = kPanels_;
  static constexpr int kSlots = kSlots_;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  // In shared memory, behind the ring.
  static constexpr int kWeights = kSlots * kTileBytes;
  static constexpr int kTerms = kWeights + kRound * kWeightBytes;
  static constexpr int kMaxima = kTerms + kRound * kTermBytes;
  static constexpr int kFull = kMaxima + kWarps * kHeads * 4;
  static constexpr int kEmpty = kFull + kSlots * 8;
  static constexpr int kBytes = kEmpty + kSlots * 8;
  static constexpr int kResident = 228 * 1024 / (kBytes + 1024);  // thread blocks a multiprocessor
};

__device__ __forceinline__ void store_shared(uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}
// Of the 16 bytes `chunk` of a row of a panel.
__device__ __forceinline__ uint32_t chunk_address(uint32_t panel, int row, int chunk) {
  return panel + row * 128 + ((chunk ^ (row & 7)) << 4);
}
// Of the warps that compute.
__device__ __forceinline__ void sync_round() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
// An 8 x 8 matrix of 16-bit elements over the warp, transposed.
__device__ __forceinline__ uint32_t turned(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
// The largest of the eight lanes with the same lane % 4.
__device__ __forceinline__ float column_max(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
  return x;
}

// The bits of n << 23 of an integer |n| <= 2^22 as a float, without a conversion.
__device__ __forceinline__ uint32_t integer_bits(float n) {
  return __float_as_uint(n + numerics::kRoundEvenMagic) << 23;
}
// As Lowering.
struct QuickLowering {
  float factor;
  bool to_zero;
  __device__ __forceinline__ explicit QuickLowering(float e)
      : factor(numerics::float_from_bits(integer_bits(fmaxf(e, -126.0F)) + (127U << 23))),
        to_zero(e < -126.0F) {}
  __device__ __forceinline__ float operator()(float x) const {
    const float product = x * factor;
    return to_zero ? 0.0F : product;
  }
};

// Rows of all pages: boxes of a block of keys, and of 16.
struct PageMaps {
  CUtensorMap block, rows;
};

// What a thread block works on.
struct Unit {
  int row, segment, kv_head, head0, there;
  int sequence, first_key, end_key, blocks;
  int fresh;   // the key, counted from first_key, that the pages do not hold yet; -1: none
  bool alone;  // the only segment
};

// Tile i of the ring: K of a round's blocks, then V of them.
struct Tile {
  int block;
  bool value;
  __device__ __forceinline__ Tile(int i, int blocks) {
    const int round = i / (2 * kRound);
    const int rest = i % (2 * kRound);
    const int n = min(kRound, blocks - round * kRound);
    value = rest >= n;
    block = round * kRound + (value ? rest - n : rest);
  }
};

template <class P>
struct Producer {
  static constexpr int kD = 64 * P::kPanels;
  static constexpr int kChunks = 8 * P::kPanels;  // of a row
  const DecodeArguments& a;
  const PageMaps* maps;
  const Unit& u;
  uint32_t memory;
  int lane;
  const int32_t* table;
  int32_t page = 0;  // of block 32 * pages + lane
  int pages = -1;

  // Rows that the sequence has, rounded up to 16.
  __device__ __forceinline__ void copy(int i, int slot) {
    const Tile tile(i, u.blocks);
    if (tile.block / 32 != pages) {
      pages = tile.block / 32;
      const int block = pages * 32 + lane;
      page = block < u.blocks ? __ldcg(table + block) : 0;
    }
    const int64_t row = __shfl_sync(0xFFFFFFFFU, page, tile.block % 32) * a.page_rows +
                        (tile.value ? a.v_row : a.k_row) + u.kv_head * kRows;
    const int boxes = (min(kRows, u.end_key - u.first_key - tile.block * kRows) + 15) / 16;
    const uint32_t barrier = memory + P::kFull + slot * 8;
    if (lane == 0) hopper::barrier_expect(barrier, boxes * P::kPanels * 2048);
    __syncwarp();
    if (boxes == 4) {
      if (lane < P::kPanels)
        hopper::copy_box(memory + slot * P::kTileBytes + lane * kPanelBytes, &maps->block, lane * 64,
                         static_cast<int>(row), barrier);
    } else if (lane < 4 * P::kPanels && lane % 4 < boxes) {
      hopper::copy_box(memory + slot * P::kTileBytes + lane / 4 * kPanelBytes + lane % 4 * 2048, &maps->rows,
                       lane / 4 * 64, static_cast<int>(row) + lane % 4 * 16, barrier);
    }
    __syncwarp();
  }
  // The fresh row goes into its page for the steps to come.
  __device__ __forceinline__ void keep_fresh() const {
    if (u.fresh < 0 || lane >= 2 * kChunks) return;
    const bool value = lane >= kChunks;
    const int column = lane % kChunks * 8;
    const Bf16* from = (value ? a.fresh.v : a.fresh.k) + u.row * a.fresh.ld + u.kv_head * kD + column;
    Bf16* to = a.pages.base + (static_cast<int64_t>(u.kv_head) * kRows + u.fresh % kRows) * kD +
               __ldcg(table + u.fresh / kRows) * a.pages.page_stride + column +
               (value ? a.pages.v_offset : a.pages.k_offset);
    *reinterpret_cast<uint4*>(to) = __ldcg(reinterpret_cast<const uint4*>(from));
  }
  __device__ __forceinline__ void run(bool early) {
    const int tiles = 2 * u.blocks;
    for (int i = 0; i < min(P::kSlots, tiles); ++i) copy(i, i);
    if (early) {
      cuda::wait_for_launch_before();
      keep_fresh();
    }
    int slot = 0;
    uint32_t parity = 0;
    for (int i = P::kSlots; i < tiles; ++i) {
      hopper::barrier_wait(memory + P::kEmpty + slot * 8, parity);
      copy(i, slot);
      if (++slot == P::kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
  }
};

}  // namespace stream
}  // namespace lockstep::ops::attention
