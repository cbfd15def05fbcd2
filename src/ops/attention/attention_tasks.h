// SPDX-License-Identifier: Apache-2.0
// What a task of the CPU paths works on. Plain structs and functions that are compiled once, shared by the
// kernels of all instruction sets.
#pragma once

#include <cstdint>

#include "numerics/constants.h"
#include "ops/attention/attention.h"

namespace lockstep::ops {

static_assert(numerics::kKeyBlock == 64 && numerics::kSoftmaxLanes == 8, "the kernels are written for these");
inline constexpr int64_t kSegmentBlocks = numerics::kAttentionSegment / numerics::kKeyBlock;
inline constexpr int64_t kQueryTile = 64;  // queries whose scores are held at once
inline constexpr float kNoMax = -0x1p30F;  // M before a key was seen
inline constexpr float kMaskedScore =
    -0x1p23F;  // below every score in range by more than any weight can span

// Sums of one query over a segment, apart from o [head_size].
struct QueryState {
  float max;       // M; kNoMax before the first key
  float lanes[8];  // of l; after end_segment() lanes[0] is l
};

// Rows [0, rows) of one run for the query heads of one key/value head. Query x is row x / group, head x %
// group of the group.
struct ForwardTask {
  int64_t head_size, group, rows, first_position;
  float scale;
  const float* q;  // [rows * group, head_size]
  const float* const* k_blocks;
  const float* const* v_blocks;
  int64_t kv_offset;   // of the key/value head in a block
  float* scores;       // [kQueryTile, 64]
  QueryState* states;  // [rows * group]
  float* o;            // [rows * group, head_size]
};

// One sample and key/value head; everything copied together, so that a tile stays in the nearest cache.
struct BackwardTask {
  int64_t head_size, rows, padded_rows, heads, first_head;
  float scale;
  const float* max_exponent;  // [rows, heads], of all heads
  const float* inverse_sum;   // [rows, heads]
  const float* q;             // [group, rows, head_size]
  const float* d_out;         // [group, rows, head_size]
  const float* row_sums;      // [group, rows]: D
  float* dq;                  // [group, rows, head_size]
  // The block of keys at hand.
  const float* k_rows;     // [64, head_size]
  const float* k_columns;  // [head_size, 64], +0 past the last key
  const float* v_columns;  // [head_size, 64], +0 past the last key
  float* dk;               // [64, head_size]
  float* dv;               // [64, head_size]
  float* dk_total;         // [64, head_size]: sum of whole chunks
  float* dv_total;         // [64, head_size]
  // Of the tile.
  float* p;   // [64, 64]
  float* ds;  // [64, 64]
};

using ForwardSegment = bool (*)(const ForwardTask& task, int64_t segment);
using BackwardTile = void (*)(const BackwardTask& task, int64_t g, int64_t query, int64_t rows, int64_t key,
                              int64_t keys);
struct AttentionKernels {
  ForwardSegment forward_segment;
  BackwardTile backward_tile;
};
AttentionKernels attention_kernels_portable();
// Null where the compiler's target lacks the instructions; the caller asks cpu::isa_available first.
AttentionKernels attention_kernels_avx2();
AttentionKernels attention_kernels_avx512();

// The kernels of the context's instruction set.
AttentionKernels attention_kernels(cpu::Isa isa);

// M rises to `max`: l and o become multiples of the new 2^M.
void raise_state(float max, int64_t d, QueryState* state, float* o);
// A chunk of the chains of the block of keys ends before `step`: moves dk, dv into the totals.
void end_chunk(const BackwardTask& task, int64_t step);

}  // namespace lockstep::ops
