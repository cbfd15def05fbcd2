// SPDX-License-Identifier: Apache-2.0
// What the launches of the fp32 products share: tile shapes, their choice, grid sizes.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/check.h"
#include "device/cuda/launch.h"
#include "ops/matmul/matmul_fp32_shapes.h"
#include "ops/matmul/matmul_fp32_tile.cuh"

namespace lockstep::ops::fp32 {

using Shape128x128 = TileShape<128, 128, 8, 16, 8, 4, 2>;
using Shape128x112 = TileShape<128, 112, 8, 14, 8, 4, 2>;
using Shape128x96 = TileShape<128, 96, 8, 12, 8, 4, 2>;
using Shape128x64 = TileShape<128, 64, 8, 8, 8, 4, 3>;
using Shape32x64Parts = TileShape<32, 64, 4, 4, 16, 3, 3>;  // a quarter of it for as many threads
using Shape64x64 = TileShape<64, 64, 8, 8, 8, 4, 6>;
using Shape32x64 = TileShape<32, 64, 4, 8, 16, 4, 4>;

inline int64_t tiles_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// A tile shape and its rate with full SMs, relative to the fastest: measured on an H200
// (bench/cuda/sgemm_bench.cu).
struct ShapeRate {
  Shape shape;
  int rows, columns, threads;
  double rate;
};
inline constexpr ShapeRate kRates[] = {
    {Shape::k128x128, 128, 128, 128, 1.0}, {Shape::k128x112, 128, 112, 128, 0.97},
    {Shape::k128x96, 128, 96, 128, 0.98},  {Shape::k128x64, 128, 64, 128, 0.94},
    {Shape::k64x64, 64, 64, 64, 0.92},     {Shape::k32x64, 32, 64, 64, 0.7}};

// The fastest shape from `first` of the list on for rows x columns outputs, when `tiles` tiles are cut into
// tiles * parts_of(tiles) items of work. An SM's items run at the same time and each of its four schedulers
// has a quarter of their warps; one that has a single warp waits more. Small tiles fill the SMs better and
// run slower.
template <class PartsOf>
Shape choose(int64_t rows, int64_t columns, int sms, Shape first, const PartsOf& parts_of) {
  Shape best = Shape::kAuto;
  double best_time = 0;
  for (const ShapeRate& s : kRates) {
    if (s.shape < first) continue;
    const int64_t tiles = tiles_of(rows, s.rows) * tiles_of(columns, s.columns), parts = parts_of(tiles);
    const int64_t warps = tiles_of(tiles_of(tiles * parts, sms) * s.threads, 128);
    const double time = s.rows * s.columns / s.threads * std::max(static_cast<double>(warps), 1.25) /
                        (s.rate * static_cast<double>(parts));
    if (best == Shape::kAuto || time < best_time) best = s.shape, best_time = time;
  }
  return best;
}

// All items at once when the whole GPU is ours; else as many blocks as the SMs hold, each taking several
// items.
template <class TileShape>
unsigned grid_for(const cuda::Context& context, int64_t items) {
  if (context.sms() == context.info().sms) return static_cast<unsigned>(items);
  return static_cast<unsigned>(std::min<int64_t>(items, int64_t{context.sms()} * TileShape::kBlocks));
}

// A kernel of `bytes` dynamic shared memory.
template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  if (bytes > 48 * 1024)
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                "preparing a product (fp32)");
}

inline bool aligned(const float* p, int64_t ld) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && ld % 4 == 0;
}

// Calls body.template operator()<TileShape>() of the named shape.
template <class Body>
void with_shape(Shape shape, const Body& body) {
  switch (shape) {
    case Shape::k128x128:
      return body.template operator()<Shape128x128>();
    case Shape::k128x112:
      return body.template operator()<Shape128x112>();
    case Shape::k128x96:
      return body.template operator()<Shape128x96>();
    case Shape::k128x64:
      return body.template operator()<Shape128x64>();
    case Shape::k64x64:
      return body.template operator()<Shape64x64>();
    case Shape::k32x64:
      return body.template operator()<Shape32x64>();
    default:
      LOCKSTEP_CHECK(false);
  }
}

}  // namespace lockstep::ops::fp32
