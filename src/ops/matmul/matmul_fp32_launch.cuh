// SPDX-License-Identifier: Apache-2.0
// What the launches of the fp32 products share: tile shapes, their choice, grid sizes.
#pragma once

#include <algorithm>

#include "core/check.h"
#include "device/cuda/launch.h"
#include "ops/matmul/matmul_fp32_shapes.h"
#include "ops/matmul/matmul_fp32_tile.cuh"

namespace lockstep::ops::fp32 {

using Shape128x128 = TileShape<128, 128, 8, 16, 8, 2>;
using Shape128x128Warps = TileShape<128, 128, 8, 8, 8, 2>;
using Shape64x64 = TileShape<64, 64, 8, 8, 16, 6>;
using Shape32x64 = TileShape<32, 64, 4, 8, 32, 4>;

inline int64_t tiles_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// Rates of the tile shapes relative to the fastest, measured on an H200 (bench/cuda/sgemm_bench.cu).
struct ShapeRates {
  double k128x128, k64x64, k32x64;
};

// Tiles go to the SMs in rounds; small ones fill the last round better and run slower.
inline Shape choose(int64_t rows, int64_t columns, int sms, const ShapeRates& rates) {
  struct Candidate {
    Shape shape;
    int64_t rows, columns;
    double rate;
  };
  const Candidate candidates[] = {{Shape::k128x128, 128, 128, rates.k128x128},
                                  {Shape::k64x64, 64, 64, rates.k64x64},
                                  {Shape::k32x64, 32, 64, rates.k32x64}};
  Shape best = Shape::k128x128;
  double best_time = 0;
  for (const Candidate& c : candidates) {
    const int64_t rounds = tiles_of(tiles_of(rows, c.rows) * tiles_of(columns, c.columns), sms);
    const double time = static_cast<double>(rounds * c.rows * c.columns) / c.rate;
    if (best_time == 0 || time < best_time) best = c.shape, best_time = time;
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
    case Shape::k128x128Warps:
      return body.template operator()<Shape128x128Warps>();
    case Shape::k64x64:
      return body.template operator()<Shape64x64>();
    case Shape::k32x64:
      return body.template operator()<Shape32x64>();
    default:
      LOCKSTEP_CHECK(false);
  }
}

}  // namespace lockstep::ops::fp32
