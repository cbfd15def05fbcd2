// SPDX-License-Identifier: Apache-2.0
// Gradient of a matrix, binary32: tiles of W, the chains of all leaves of a micro-batch. Where the tiles
// alone fill the GPU a block takes the leaves of its tile one after another; else a block takes one leaf, and
// the integers are added atomically.
#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul_fp32_launch.cuh"

namespace lockstep::ops {
namespace fp32 {
namespace {

using numerics::kGradientChunk;

template <class TileShape, bool kVector>
class LeafTile {
 public:
  using LoaderA = StageLoader<false, kVector, TileShape::kRows, TileShape::kSteps, TileShape::kThreads,
                              TileShape::kRowPitch>;
  using LoaderB = StageLoader<false, kVector, TileShape::kColumns, TileShape::kSteps, TileShape::kThreads,
                              TileShape::kColumnPitch>;

  __device__ LeafTile(float* shared, const Operand& dy, const Operand& x, const WeightGradientSink& sink)
      : tile_(shared), dy_(dy), x_(x), sink_(sink) {}

  // One leaf's chains of the tile at (row, column) of W.
  __device__ void run(int64_t row, int64_t column, const WeightGradientRows& leaf, bool atomic) {
    tile_.clear();
    bool has_sum = leaf.rows_before > kGradientChunk;
    if (leaf.begins == 0) load_carry(row, column, has_sum);
    const int64_t rows = leaf.end - leaf.begin;
    int64_t position = leaf.rows_before;
    for (int64_t t = 0; t < rows;) {
      if (position > 0 && position % kGradientChunk == 0) {
        tile_.fold(position == kGradientChunk);
        has_sum = true;
      }
      const int64_t length = min(rows - t, kGradientChunk - position % kGradientChunk);
      LoaderA a(dy_, row, leaf.begin + t);
      LoaderB b(x_, column, leaf.begin + t);
      int folds = 0;
      tile_.run(a, b, length, 0, &folds);
      t += length;
      position += length;
    }
    if (leaf.ends != 0) {
      if (position > kGradientChunk) tile_.add_sums();
      add_to_image(row, column, leaf.leaf, atomic);
    } else {
      store_carry(row, column, has_sum);
    }
  }

 private:
  // What happens once a leaf goes four elements at a time through the thread's part of shared memory, in
  // rolled loops: registers are for the chains. body(shared values, element of W of the first, how many
  // exist).
  template <class Body>
  __device__ void each(int64_t row, int64_t column, const Body& body) {
#pragma unroll 1
    for (int q = 0; q < TileShape::kTM * TileShape::kTN / 4; ++q) {
      const int i = q / (TileShape::kTN / 4), j = q % (TileShape::kTN / 4) * 4;
      const int64_t r = row + tile_.row_of(i), c = column + tile_.column_of(j);
      if (r >= dy_.count || c >= x_.count) continue;
      body(reinterpret_cast<float*>(tile_.sum_at(i, j)), r * x_.count + c,
           static_cast<int>(min(int64_t{4}, x_.count - c)));
    }
  }
  __device__ void load_carry(int64_t row, int64_t column, bool has_sum) {
    each(row, column, [&](float* shared, int64_t element, int n) {
      for (int e = 0; e < n; ++e) shared[e] = sink_.carry[element + e];
    });
    tile_.take_sums();
    if (!has_sum) return;
    each(row, column, [&](float* shared, int64_t element, int n) {
      for (int e = 0; e < n; ++e) shared[e] = sink_.chunk_sum[element + e];
    });
  }
  __device__ void store_carry(int64_t row, int64_t column, bool has_sum) {
    if (has_sum) {
      each(row, column, [&](float* shared, int64_t element, int n) {
        for (int e = 0; e < n; ++e) sink_.chunk_sum[element + e] = shared[e];
      });
    }
    tile_.fold(true);
    each(row, column, [&](float* shared, int64_t element, int n) {
      for (int e = 0; e < n; ++e) sink_.carry[element + e] = shared[e];
    });
  }
  __device__ void add_to_image(int64_t row, int64_t column, int64_t leaf, bool atomic) {
    tile_.fold(true);
    bool in_range = true;
    each(row, column, [&](const float* shared, int64_t element, int n) {
      int64_t* to = sink_.image + element;
      int64_t value[4];
      for (int e = 0; e < 4; ++e) {
        const bool good = numerics::in_gradient_range(shared[e], sink_.bound);
        in_range = in_range && (good || e >= n);
        value[e] = good ? numerics::gradient_to_fixed(shared[e]) : 0;  // out of range: adds nothing
      }
      if (atomic) {
        for (int e = 0; e < 4; ++e)
          if (e < n)
            atomicAdd(reinterpret_cast<unsigned long long*>(to + e),
                      static_cast<unsigned long long>(value[e]));
      } else if (kVector) {  // n is 4
        auto* at = reinterpret_cast<longlong2*>(to);
        longlong2 low = at[0], high = at[1];
        low.x += value[0], low.y += value[1], high.x += value[2], high.y += value[3];
        at[0] = low, at[1] = high;
      } else {
        for (int e = 0; e < 4; ++e)
          if (e < n) to[e] += value[e];
      }
    });
    if (!in_range) cuda::report(sink_.fault, static_cast<unsigned long long>(leaf) << sink_.fault_leaf_shift);
  }

  Tile<TileShape> tile_;
  const Operand& dy_;
  const Operand& x_;
  const WeightGradientSink& sink_;
};

// An item is a tile with all its leaves or, `apart`, a tile and a leaf. There the first leaf's item also does
// the last leaf when the one reads and the other writes the carry.
template <class TileShape, bool kVector>
__global__ void __launch_bounds__(TileShape::kThreads, TileShape::kBlocks)
    weight_gradient_kernel(Operand dy, Operand x, const WeightGradientRows* leaves, int64_t n_leaves,
                           bool apart, WeightGradientSink sink) {
  extern __shared__ float4 shared[];
  LeafTile<TileShape, kVector> tile(reinterpret_cast<float*>(shared), dy, x, sink);
  const int64_t row_tiles = (dy.count + TileShape::kRows - 1) / TileShape::kRows;
  const int64_t tiles = row_tiles * ((x.count + TileShape::kColumns - 1) / TileShape::kColumns);
  const bool chained = apart && n_leaves > 1 && leaves[0].begins == 0 && leaves[n_leaves - 1].ends == 0;
  for (int64_t item = blockIdx.x; item < tiles * (apart ? n_leaves : 1); item += gridDim.x) {
    const int64_t row = item % tiles % row_tiles * TileShape::kRows;
    const int64_t column = item % tiles / row_tiles * TileShape::kColumns;
    const int64_t mine = item / tiles;
    if (chained && mine == n_leaves - 1) continue;
    for (int64_t i = mine; i < n_leaves;) {
      tile.run(row, column, leaves[i], apart && n_leaves > 1);
      if (!apart)
        ++i;
      else
        i = chained && i == 0 ? n_leaves - 1 : n_leaves;
    }
  }
}

template <class TileShape, bool kVector>
void launch(const cuda::Context& context, const Operand& dy, const Operand& x,
            const WeightGradientRows* leaves, int64_t n_leaves, const WeightGradientSink& sink) {
  const int64_t tiles = tiles_of(dy.count, TileShape::kRows) * tiles_of(x.count, TileShape::kColumns);
  const bool apart = n_leaves > 1 && tiles < int64_t{4} * context.sms();
  constexpr int kBytes = TileShape::bytes(true);
  auto* kernel = weight_gradient_kernel<TileShape, kVector>;
  allow_shared(kernel, kBytes);
  kernel<<<grid_for<TileShape>(context, tiles * (apart ? n_leaves : 1)), TileShape::kThreads, kBytes,
           context.stream()>>>(dy, x, leaves, n_leaves, apart, sink);
  cuda::check_launch("the gradient of a matrix (fp32)");
}

}  // namespace

void weight_gradient(const cuda::Context& context, Shape shape, const float* dy, int64_t lddy, const float* x,
                     int64_t ldx, int64_t n, int64_t k, const WeightGradientRows* leaves, int64_t n_leaves,
                     const WeightGradientSink& sink) {
  if (n == 0 || k == 0 || n_leaves == 0) return;
  const Operand a = {dy, lddy, n}, b = {x, ldx, k};
  const bool vector = aligned(dy, lddy) && aligned(x, ldx) && n % 4 == 0 && k % 4 == 0 &&
                      reinterpret_cast<uintptr_t>(sink.image) % 16 == 0;
  if (!vector) return launch<Shape64x64, false>(context, a, b, leaves, n_leaves, sink);
  if (shape == Shape::k128x128) return launch<Shape128x128, true>(context, a, b, leaves, n_leaves, sink);
  if (shape == Shape::k128x128Warps)
    return launch<Shape128x128Warps, true>(context, a, b, leaves, n_leaves, sink);
  launch<Shape64x64, true>(context, a, b, leaves, n_leaves, sink);  // the fastest at all sizes measured
}

}  // namespace fp32

void matmul_weight_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy,
                                      const float* x, int64_t ldx, int64_t n, int64_t k,
                                      const WeightGradientRows* leaves, int64_t n_leaves,
                                      const WeightGradientSink& sink) {
  fp32::weight_gradient(context, fp32::Shape::kAuto, dy, lddy, x, ldx, n, k, leaves, n_leaves, sink);
}

}  // namespace lockstep::ops
