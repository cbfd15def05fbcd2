// SPDX-License-Identifier: Apache-2.0
// One tile of a product in binary32 on the plain fma units: every element of the tile is one chain of fma in
// ascending steps, kept in a register. Operands come in two layouts: steps contiguous (x, dy and W of the
// forward product) or outputs contiguous (W of dX, both operands of dW). They pass through registers into
// shared memory as [step][output], double-buffered, so that a thread reads four outputs of a step with one
// 16-byte load.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::ops::fp32 {

// kRows x kColumns outputs a block, kTM x kTN a thread; kSteps steps a stage of shared memory; kBlocks:
// blocks an SM that registers must allow.
template <int kRowsT, int kColumnsT, int kTMT, int kTNT, int kStepsT, int kBlocksT>
struct TileShape {
  static constexpr int kRows = kRowsT, kColumns = kColumnsT, kTM = kTMT, kTN = kTNT;
  static constexpr int kSteps = kStepsT, kBlocks = kBlocksT;
  static constexpr int kThreads = kRows * kColumns / (kTM * kTN);
  // A warp is 8 x 4 threads. Lanes i and i^1 share their rows, i and i^2 their columns, so that a 16-byte
  // shared load of a warp takes two cycles of the banks, not four.
  static constexpr int kWarpRows = 8 * kTM, kWarpColumns = 4 * kTN;
  static constexpr int kRowPitch = kRows + 4, kColumnPitch = kColumns + 4;
  static constexpr int kStageFloats = kSteps * (kRowPitch + kColumnPitch);
  static constexpr int kSumFloats = kRows * kColumns;
  static_assert(kRows % kWarpRows == 0 && kColumns % kWarpColumns == 0 && kTM % 4 == 0 && kTN % 4 == 0 &&
                kSteps % 8 == 0);
  static constexpr int bytes(bool with_sums) { return 4 * (2 * kStageFloats + (with_sums ? kSumFloats : 0)); }
};

// A matrix of `count` outputs: element (output, step) is at p[output * ld + step] or p[step * ld + output].
struct Operand {
  const float* p;
  int64_t ld;
  int64_t count;
};

// One thread's part of a stage of kTile outputs from `first`. Outputs past the end read the last one's
// elements again: they are never stored. kVector: 16-byte loads are allowed.
template <bool kStepsContiguous, bool kVector, int kTile, int kSteps, int kThreads, int kPitch>
class StageLoader {
 public:
  static constexpr int kPieces = kTile * kSteps / 4 / kThreads;
  static constexpr int kAcross = kSteps / 4;  // pieces of an output, steps contiguous
  static_assert(kTile * kSteps / 4 % kThreads == 0);

  __device__ StageLoader(const Operand& o, int64_t first, int64_t step) : ld_(o.ld) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int f = static_cast<int>(threadIdx.x) + i * kThreads;
      if constexpr (kStepsContiguous) {
        const int64_t row = min(first + f / kAcross, o.count - 1);
        p_[i] = o.p + row * o.ld + step + f % kAcross * 4;
      } else {
        const int64_t column = first + f % (kTile / 4) * 4;
        // kVector: count is a multiple of 4.
        left_[i] = kVector ? 4 : static_cast<int>(min(max(o.count - column, int64_t{0}), int64_t{4}));
        p_[i] = o.p + (step + f / (kTile / 4)) * o.ld + min(column, o.count - (kVector ? 4 : 1));
      }
    }
  }
  __device__ void load() {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if constexpr (kVector) {
        const float4 v = __ldg(reinterpret_cast<const float4*>(p_[i]));
        r_[i][0] = v.x, r_[i][1] = v.y, r_[i][2] = v.z, r_[i][3] = v.w;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (kStepsContiguous || e < left_[i]) r_[i][e] = __ldg(p_[i] + e);
      }
      p_[i] += kStepsContiguous ? kSteps : kSteps * ld_;
    }
  }
  // The last, short stage: steps from `valid` on are not read.
  __device__ void load_short(int valid) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int f = static_cast<int>(threadIdx.x) + i * kThreads;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool there =
            kStepsContiguous ? f % kAcross * 4 + e < valid : f / (kTile / 4) < valid && e < left_[i];
        r_[i][e] = there ? __ldg(p_[i] + e) : 0.0F;
      }
    }
  }
  __device__ void store(float* stage) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int f = static_cast<int>(threadIdx.x) + i * kThreads;
      if constexpr (kStepsContiguous) {
#pragma unroll
        for (int e = 0; e < 4; ++e) stage[(f % kAcross * 4 + e) * kPitch + f / kAcross] = r_[i][e];
      } else {
        *reinterpret_cast<float4*>(stage + f / (kTile / 4) * kPitch + f % (kTile / 4) * 4) =
            make_float4(r_[i][0], r_[i][1], r_[i][2], r_[i][3]);
      }
    }
  }

 private:
  const float* p_[kPieces];
  int64_t ld_;
  int left_[kPieces] = {};
  float r_[kPieces][4] = {};
};

// The accumulators of a thread, and the sums of whole chunks in shared memory.
template <class Shape>
struct Tile {
  static constexpr int kTM = Shape::kTM, kTN = Shape::kTN, kSteps = Shape::kSteps;

  float acc[kTM][kTN];
  float* stages;    // 2 * kStageFloats
  float* sums;      // kSumFloats; each thread sees its own elements only
  int row, column;  // of element (0, 0) in the tile

  __device__ explicit Tile(float* shared) : stages(shared), sums(shared + 2 * Shape::kStageFloats) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;
    constexpr int kWarpsAcross = Shape::kColumns / Shape::kWarpColumns;
    row = warp / kWarpsAcross * Shape::kWarpRows + (lane >> 1 & 7) * 4;
    column = warp % kWarpsAcross * Shape::kWarpColumns + ((lane & 1) | (lane >> 4 << 1)) * 4;
  }
  // Row and column in the tile of element (i, j).
  __device__ int row_of(int i) const { return row + i / 4 * 32 + i % 4; }
  __device__ int column_of(int j) const { return column + j / 4 * 16 + j % 4; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; ++j) acc[i][j] = 0.0F;
  }
  __device__ float4* sum_at(int i, int j) const {
    return reinterpret_cast<float4*>(sums) + (i * (kTN / 4) + j / 4) * Shape::kThreads + threadIdx.x;
  }
  // A chunk ends: it is the sum (the first) or is added to it; the next begins from +0.
  __device__ void fold(bool first) {
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; j += 4) {
        float4 s = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
        if (!first) {
          const float4 old = *sum_at(i, j);
          s = make_float4(old.x + s.x, old.y + s.y, old.z + s.z, old.w + s.w);
        }
        *sum_at(i, j) = s;
      }
    clear();
  }
  // acc = the sums.
  __device__ void take_sums() {
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; j += 4) {
        const float4 s = *sum_at(i, j);
        acc[i][j] = s.x, acc[i][j + 1] = s.y, acc[i][j + 2] = s.z, acc[i][j + 3] = s.w;
      }
  }
  // The result of a chunked chain whose last chunk is in acc.
  __device__ void add_sums() {
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; j += 4) {
        const float4 s = *sum_at(i, j);
        acc[i][j] = s.x + acc[i][j];
        acc[i][j + 1] = s.y + acc[i][j + 1];
        acc[i][j + 2] = s.z + acc[i][j + 2];
        acc[i][j + 3] = s.w + acc[i][j + 3];
      }
  }

  __device__ void load_fragment(const float* stage, int step, float (&a)[kTM], float (&b)[kTN]) const {
    const float* pa = stage + step * Shape::kRowPitch + row;
    const float* pb = stage + kSteps * Shape::kRowPitch + step * Shape::kColumnPitch + column;
#pragma unroll
    for (int i = 0; i < kTM; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(pa + i * 8);
      a[i] = v.x, a[i + 1] = v.y, a[i + 2] = v.z, a[i + 3] = v.w;
    }
#pragma unroll
    for (int j = 0; j < kTN; j += 4) {
      const float4 v = *reinterpret_cast<const float4*>(pb + j * 4);
      b[j] = v.x, b[j + 1] = v.y, b[j + 2] = v.z, b[j + 3] = v.w;
    }
  }
  __device__ void multiply(const float (&a)[kTM], const float (&b)[kTN]) {
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; ++j) {
        const int jj = (i & 1) != 0 ? kTN - 1 - j : j;  // back and forth: neighbours share an operand
        acc[i][jj] = __fmaf_rn(a[i], b[jj], acc[i][jj]);
      }
  }

  // Continues all chains over `steps` steps of the two loaders' operands. After every `chunk` steps (a
  // multiple of kSteps; 0: never) that are not the last, the chunk is folded; *folds counts.
  template <class LoaderA, class LoaderB>
  __device__ void run(LoaderA& a, LoaderB& b, int64_t steps, int64_t chunk, int* folds) {
    const int64_t whole = steps / kSteps;
    const int valid = static_cast<int>(steps % kSteps);
    int64_t until_fold = chunk == 0 ? -1 : chunk / kSteps;
    if (whole > 0) {
      float fa[2][kTM], fb[2][kTN];
      int offset = 0;
      a.load();
      b.load();
      a.store(stages);
      b.store(stages + kSteps * Shape::kRowPitch);
      __syncthreads();
      load_fragment(stages, 0, fa[0], fb[0]);
      for (int64_t t = 1; t <= whole; ++t) {
        const bool more = t < whole;
        if (more) {
          a.load();
          b.load();
        }
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (step == kSteps - 1) {
            if (more) {
              float* next = stages + (Shape::kStageFloats - offset);
              a.store(next);
              b.store(next + kSteps * Shape::kRowPitch);
            }
            __syncthreads();
            offset = Shape::kStageFloats - offset;
            if (more) load_fragment(stages + offset, 0, fa[0], fb[0]);
          } else {
            load_fragment(stages + offset, step + 1, fa[(step + 1) & 1], fb[(step + 1) & 1]);
          }
          multiply(fa[step & 1], fb[step & 1]);
        }
        if (--until_fold == 0 && (more || valid > 0)) {
          fold((*folds)++ == 0);
          until_fold = chunk / kSteps;
        }
      }
    }
    if (valid > 0) {
      a.load_short(valid);
      b.load_short(valid);
      a.store(stages);
      b.store(stages + kSteps * Shape::kRowPitch);
      __syncthreads();
#pragma unroll 1
      for (int step = 0; step < valid; ++step) {
        float fa[kTM], fb[kTN];
        load_fragment(stages, step, fa, fb);
        multiply(fa, fb);
      }
      __syncthreads();
    }
  }
};

}  // namespace lockstep::ops::fp32
