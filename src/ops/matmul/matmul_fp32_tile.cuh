// SPDX-License-Identifier: Apache-2.0
// One tile of a product in binary32 on the plain fma units: every element of the tile is one chain of fma in
// ascending steps, kept in a register. Operands come in two layouts: steps contiguous (x, dy and W of the
// forward product) or outputs contiguous (W of dX, both operands of dW). Asynchronous copies bring them into
// a ring of stages in shared memory as [step][output], so that a thread reads four outputs of a step with one
// 16-byte load.
#pragma once

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::ops::fp32 {

// kRows x kColumns outputs a block, kTM x kTN a thread; a ring of kStages stages of kSteps steps; kBlocks:
// blocks an SM that registers must allow.
template <int kRowsT, int kColumnsT, int kTMT, int kTNT, int kStepsT, int kStagesT, int kBlocksT>
struct TileShape {
  static constexpr int kRows = kRowsT, kColumns = kColumnsT, kTM = kTMT, kTN = kTNT;
  static constexpr int kSteps = kStepsT, kStages = kStagesT, kBlocks = kBlocksT;
  static constexpr int kThreads = kRows * kColumns / (kTM * kTN);
  // A warp is 8 x 4 threads. Lanes i and i^1 share their rows, i and i^2 their columns, so that a 16-byte
  // shared load of a warp takes two cycles of the banks, not four.
  static constexpr int kWarpRows = 8 * kTM, kWarpColumns = 4 * kTN;
  static constexpr int kRowPitch = kRows + 4, kColumnPitch = kColumns + 4;
  static constexpr int kStageFloats = kSteps * (kRowPitch + kColumnPitch);
  static constexpr int kSumFloats = kRows * kColumns;
  static_assert(kRows % kWarpRows == 0 && kColumns % kWarpColumns == 0 && kTM % 4 == 0 && kTN % 2 == 0 &&
                kSteps % 8 == 0 && kStages >= 2);
  static constexpr int bytes(bool with_sums) {
    return 4 * (kStages * kStageFloats + (with_sums ? kSumFloats : 0));
  }
};

// A matrix of `count` outputs: element (output, step) is at p[output * ld + step] or p[step * ld + output].
// ld is at most kMaxStride.
struct Operand {
  const float* p;
  int64_t ld;
  int64_t count;
};
inline constexpr int64_t kMaxStride = int64_t{1} << 23;  // 128 of these are a byte offset of 32 bits

// One thread's part of a stage of kTile outputs from `first`. Outputs past the end read the last one's
// elements again: they are never stored. kWide: copies of 16 bytes, where outputs are contiguous (count a
// multiple of 4, all aligned); where steps are, copies of 4 bytes turn the tile round: a warp copies 8 steps
// of 4 outputs, into 32 different banks.
template <bool kStepsContiguous, bool kWide, int kTile, int kSteps, int kThreads, int kPitch>
class StageLoader {
 public:
  static constexpr int kFloats = kWide && !kStepsContiguous ? 4 : 1;  // of a copy
  static constexpr int kAll = kTile * kSteps / kFloats;
  static constexpr int kPieces = (kAll + kThreads - 1) / kThreads;
  static_assert((!kStepsContiguous || kAll % kThreads == 0) && kPitch % 8 == 4);

  __device__ StageLoader(const Operand& o, int64_t first, int64_t step)
      : base_(reinterpret_cast<const char*>(o.p +
                                            (kStepsContiguous ? first * o.ld + step : step * o.ld + first))),
        advance_((kStepsContiguous ? 1 : o.ld) * int64_t{4 * kSteps}) {
    const int64_t last = o.count - first - kFloats;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int64_t output = min(int64_t{output_of(i)}, last);
      offset_[i] =
          static_cast<uint32_t>(kStepsContiguous ? output * o.ld + step_of(i) : step_of(i) * o.ld + output) *
          4;
    }
  }
  // The pieces of a stage that go out during one of its steps: all of them by the step before the last.
  __device__ void copy_part(float* stage, int step) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (min(i * kSteps / kPieces, kSteps - 2) == step) copy(stage, i);
  }
  // Steps from `valid` on are not read.
  __device__ void copy_all(float* stage, int valid) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (step_of(i) < valid) copy(stage, i);
  }
  __device__ void next_stage() {
    base_ += advance_;
  }

 private:
  // Where piece i of this thread is in a stage.
  static __device__ int step_of(int i) {
    const int t = static_cast<int>(threadIdx.x);
    return kStepsContiguous ? t % 8 + i % (kSteps / 8) * 8 : (t + i * kThreads) / (kTile / kFloats);
  }
  static __device__ int output_of(int i) {
    const int t = static_cast<int>(threadIdx.x);
    return kStepsContiguous ? t / 8 + i / (kSteps / 8) * (kThreads / 8)
                            : (t + i * kThreads) % (kTile / kFloats) * kFloats;
  }
  __device__ void copy(float* stage, int i) const {
    if ((i + 1) * kThreads > kAll && static_cast<int>(threadIdx.x) + i * kThreads >= kAll) return;
    __pipeline_memcpy_async(stage + step_of(i) * kPitch + output_of(i), base_ + offset_[i], kFloats * 4);
  }

  const char* base_;  // of the stage to copy next
  int64_t advance_;   // bytes from a stage to the next
  uint32_t offset_[kPieces];
};

// The accumulators of a thread, and the sums of whole chunks in shared memory.
template <class Shape>
struct Tile {
  static constexpr int kTM = Shape::kTM, kTN = Shape::kTN, kSteps = Shape::kSteps;

  float acc[kTM][kTN];
  float* stages;    // kStages * kStageFloats
  float* sums;      // kSumFloats; each thread sees its own elements only
  int row, column;  // of element (0, 0) in the tile
  int last_column;  // of the pair of columns that is left where kTN is not a multiple of 4

  __device__ explicit Tile(float* shared)
      : stages(shared), sums(shared + Shape::kStages * Shape::kStageFloats) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int warp = static_cast<int>(threadIdx.x) >> 5;
    constexpr int kWarpsAcross = Shape::kColumns / Shape::kWarpColumns;
    const int across = (lane & 1) | (lane >> 4 << 1), first = warp % kWarpsAcross * Shape::kWarpColumns;
    row = warp / kWarpsAcross * Shape::kWarpRows + (lane >> 1 & 7) * 4;
    column = first + across * 4;
    last_column = first + kTN / 4 * 16 + across * 2;
  }
  // Columns of a thread come in groups of neighbours: of 4 and, last, of 2 where kTN is not a multiple of 4.
  static constexpr int kGroups = (kTN + 3) / 4;
  static __device__ int group_size(int j) { return min(4, kTN - j); }
  // Row and column in the tile of element (i, j).
  __device__ int row_of(int i) const { return row + i / 4 * 32 + i % 4; }
  __device__ int column_of(int j) const {
    return kTN % 4 != 0 && j >= kTN / 4 * 4 ? last_column + j % 4 : column + j / 4 * 16 + j % 4;
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kTM; ++i)
#pragma unroll
      for (int j = 0; j < kTN; ++j) acc[i][j] = 0.0F;
  }
  // Where the sum of element (i, j) is; (i, j + 1) is kSumStride floats on. Four neighbours of a column are
  // one 16-byte access, and the neighbours of a pair change places: so the compiler gives an accumulator the
  // register bank that its element of a is not in, see multiply().
  static constexpr int kSumStride = 4 * Shape::kThreads;
  __device__ float* sum_at(int i, int j) const {
    return slot(sums, i, j);
  }
  static __device__ float* slot(float* at, int i, int j) {
    return at + (i / 4 * kTN + j) * kSumStride + 4 * static_cast<int>(threadIdx.x) + (i % 4 ^ 1);
  }
  // A chunk ends: it is the sum (the first) or is added to it; the next begins from +0.
  __device__ void fold(bool first) {
#pragma unroll
    for (int i = 0; i < kTM; i += 4)
#pragma unroll
      for (int j = 0; j < kTN; ++j) {
        float4* at = reinterpret_cast<float4*>(sum_at(i + 1, j));
        float4 s = make_float4(acc[i + 1][j], acc[i][j], acc[i + 3][j], acc[i + 2][j]);
        if (!first) {
          const float4 old = *at;
          s = make_float4(old.x + s.x, old.y + s.y, old.z + s.z, old.w + s.w);
        }
        *at = s;
      }
    clear();
  }
  // Four rows from i of the columns [j, j + kColumnsOut) to the thread's part of the stages, while these are
  // free: element (i + e, j + c) is then at out(e, c).
  static constexpr int kColumnsOut = 8;
  static_assert(kColumnsOut * kSumStride <= Shape::kStages * Shape::kStageFloats);
  __device__ void put_out(int i, int j) {
#pragma unroll
    for (int c = 0; c < kColumnsOut && c < kTN - j; ++c)
      *reinterpret_cast<float4*>(slot(stages, 1, c)) =
          make_float4(acc[i + 1][j + c], acc[i][j + c], acc[i + 3][j + c], acc[i + 2][j + c]);
  }
  __device__ const float* out(int e, int c) const {
    return slot(stages, e, c);
  }
  // acc = the sums.
  __device__ void take_sums() {
#pragma unroll
    for (int i = 0; i < kTM; i += 4)
#pragma unroll
      for (int j = 0; j < kTN; ++j) {
        const float4 s = *reinterpret_cast<const float4*>(sum_at(i + 1, j));
        acc[i + 1][j] = s.x, acc[i][j] = s.y, acc[i + 3][j] = s.z, acc[i + 2][j] = s.w;
      }
  }
  // The result of a chunked chain whose last chunk is in acc.
  __device__ void add_sums() {
#pragma unroll
    for (int i = 0; i < kTM; i += 4)
#pragma unroll
      for (int j = 0; j < kTN; ++j) {
        const float4 s = *reinterpret_cast<const float4*>(sum_at(i + 1, j));
        acc[i + 1][j] = s.x + acc[i + 1][j];
        acc[i][j] = s.y + acc[i][j];
        acc[i + 3][j] = s.z + acc[i + 3][j];
        acc[i + 2][j] = s.w + acc[i + 2][j];
      }
  }

  __device__ void load_fragment(const float* stage, int step, float (&a)[kTM], float (&b)[kTN]) const {
    const float* pa = stage + step * Shape::kRowPitch + row;
    const float* pb = stage + kSteps * Shape::kRowPitch + step * Shape::kColumnPitch;
#pragma unroll
    for (int i = 0; i < kTM; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(pa + i * 8);
      a[i] = v.x, a[i + 1] = v.y, a[i + 2] = v.z, a[i + 3] = v.w;
    }
#pragma unroll
    for (int j = 0; j + 4 <= kTN; j += 4) {
      const float4 v = *reinterpret_cast<const float4*>(pb + column + j * 4);
      b[j] = v.x, b[j + 1] = v.y, b[j + 2] = v.z, b[j + 3] = v.w;
    }
    if constexpr (kTN % 4 != 0) {
      const float2 v = *reinterpret_cast<const float2*>(pb + last_column);
      b[kTN - 2] = v.x, b[kTN - 1] = v.y;
    }
  }
  // Down a column and up the next: neighbours share the element of b, which the fma units keep, so that an
  // fma reads two registers; the sequence of elements leaves the compiler free to put these two in different
  // banks of the register file.
  __device__ void multiply(const float (&a)[kTM], const float (&b)[kTN]) {
#pragma unroll
    for (int j = 0; j < kTN; ++j)
#pragma unroll
      for (int i = 0; i < kTM; ++i) {
        const int ii = (j & 1) != 0 ? kTM - 1 - i : i;
        acc[ii][j] = __fmaf_rn(a[ii], b[j], acc[ii][j]);
      }
  }

  // Continues all chains over `steps` steps of the two loaders' operands; the stages are free again after it.
  template <class LoaderA, class LoaderB>
  __device__ void run(LoaderA& a, LoaderB& b, int64_t steps) {
    constexpr int kStages = Shape::kStages, kOfB = kSteps * Shape::kRowPitch;
    const int64_t whole = steps / kSteps;
    const int valid = static_cast<int>(steps % kSteps);
    // Group t of the copies is stage t, empty past the end.
#pragma unroll 1
    for (int t = 0; t < kStages - 1; ++t) {
      if (t < whole) {
        float* to = stages + t * Shape::kStageFloats;
        a.copy_all(to, kSteps);
        b.copy_all(to + kOfB, kSteps);
        a.next_stage();
        b.next_stage();
      }
      __pipeline_commit();
    }
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    float* read = stages;
    float* write = stages + (kStages - 1) * Shape::kStageFloats;
    if (whole > 0) {
      float fa[2][kTM], fb[2][kTN];
      load_fragment(read, 0, fa[0], fb[0]);
#pragma unroll 1
      for (int64_t t = 0; t < whole; ++t) {
        const bool more = t + kStages - 1 < whole;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (step == kSteps - 1) {
            if (more) {
              a.next_stage();
              b.next_stage();
            }
            __pipeline_commit();
            __pipeline_wait_prior(kStages - 2);
            __syncthreads();
            write = read;
            read += Shape::kStageFloats;
            if (read == stages + kStages * Shape::kStageFloats) read = stages;
            load_fragment(read, 0, fa[0], fb[0]);  // past the last stage: anything, not used
          } else {
            load_fragment(read, step + 1, fa[(step + 1) & 1], fb[(step + 1) & 1]);
            if (more) {
              a.copy_part(write, step);
              b.copy_part(write + kOfB, step);
            }
          }
          multiply(fa[step & 1], fb[step & 1]);
        }
      }
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    if (valid > 0) {
      a.copy_all(stages, valid);
      b.copy_all(stages + kOfB, valid);
      __pipeline_commit();
      __pipeline_wait_prior(0);
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
