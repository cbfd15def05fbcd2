// SPDX-License-Identifier: Apache-2.0
// Gradient of a matrix, binary32: tiles of W, the chains of all leaves of a micro-batch. Where that
// loses no time in rounds of the SMs a block takes the leaves of its tile one after another; else a block
// takes one leaf, and the integers are added atomically.
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

  static constexpr int kStride = Tile<TileShape>::kSumStride, kGroups = Tile<TileShape>::kGroups;

  __device__ LeafTile(float* shared, const Operand& dy, const Operand& x, const WeightGradientSink& sink)
      : tile_(shared), dy_(dy), x_(x), sink_(sink) {}

  // One leaf's chains of the tile at (row, column) of W.
  __device__ void run(int row, int column, const WeightGradientRows& leaf, bool atomic) {
    tile_.clear();
    bool has_sum = leaf.rows_before > kGradientChunk;
    if (leaf.begins == 0) load_carry(row, column, has_sum);
    const int rows = static_cast<int>(leaf.end - leaf.begin);
    int64_t position = leaf.rows_before;
    for (int t = 0; t < rows;) {
      if (position > 0 && position % kGradientChunk == 0) {
        tile_.fold(position == kGradientChunk);
        has_sum = true;
      }
      const int length =
          min(rows - t, static_cast<int>(kGradientChunk) - static_cast<int>(position % kGradientChunk));
      LoaderA a(dy_, row, leaf.begin + t);
      LoaderB b(x_, column, leaf.begin + t);
      tile_.run(a, b, length);
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
  // rolled loops: registers are for the chains. body(shared values, kSumStride apart; element of W of the
  // first; how many exist).
  template <class Body>
  __device__ void each(int row, int column, const Body& body) {
#pragma unroll 1
    for (int q = 0; q < TileShape::kTM * kGroups; ++q) {
      const int i = q / kGroups, j = q % kGroups * 4;
      const int r = row + tile_.row_of(i), c = column + tile_.column_of(j);
      if (r >= dy_.count || c >= x_.count) continue;
      body(tile_.sum_at(i, j), r * x_.count + c,
           static_cast<int>(min(int64_t{tile_.group_size(j)}, x_.count - c)));
    }
  }
  __device__ void load_carry(int row, int column, bool has_sum) {
    each(row, column, [&](float* shared, int64_t element, int n) {
      for (int e = 0; e < n; ++e) shared[e * kStride] = sink_.carry[element + e];
    });
    tile_.take_sums();
    if (!has_sum) return;
    each(row, column, [&](float* shared, int64_t element, int n) {
      for (int e = 0; e < n; ++e) shared[e * kStride] = sink_.chunk_sum[element + e];
    });
  }
  __device__ void store_carry(int row, int column, bool has_sum) {
    if (has_sum) {
      each(row, column, [&](float* shared, int64_t element, int n) {
        for (int e = 0; e < n; ++e) sink_.chunk_sum[element + e] = shared[e * kStride];
      });
    }
    tile_.fold(true);
    each(row, column, [&](float* shared, int64_t element, int n) {
      for (int e = 0; e < n; ++e) sink_.carry[element + e] = shared[e * kStride];
    });
  }
  __device__ void add_to_image(int row, int column, int64_t leaf, bool atomic) {
    tile_.fold(true);
    bool in_range = true;
    each(row, column, [&](const float* shared, int64_t element, int n) {
      int64_t* to = sink_.image + element;
      int64_t value[4] = {};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float result = e < n ? shared[e * kStride] : 0.0F;  // no branch: four at a time
        const bool good = numerics::in_gradient_range(result, sink_.bound);
        in_range = in_range && good;
        value[e] = good ? numerics::gradient_to_fixed(result) : 0;  // out of range: adds nothing
      }
      if (atomic) {
        for (int e = 0; e < 4; ++e)
          if (e < n)
            atomicAdd(reinterpret_cast<unsigned long long*>(to + e),
                      static_cast<unsigned long long>(value[e]));
      } else if (kVector) {  // n is 4 or 2
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          if (e >= n) break;
          auto* at = reinterpret_cast<longlong2*>(to + e);
          longlong2 sum = *at;
          sum.x += value[e], sum.y += value[e + 1];
          *at = sum;
        }
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

// How the work is cut. A unit is a tile with all its leaves or, `apart`, a tile and a leaf. Units from
// `whole` on are cut further, into tiles of the small shape one below the other: they fill the last round of
// the SMs.
constexpr int kParts = 4;
struct Cut {
  bool apart;
  int64_t whole;
};

// The chains of one unit, or of a part of one, at (row, column) of W.
template <class TileShape, bool kVector>
__device__ __forceinline__ void run_unit(float* shared, const Operand& dy, const Operand& x,
                                         const WeightGradientRows* leaves, int64_t n_leaves, bool apart,
                                         int64_t first, int row, int column, const WeightGradientSink& sink) {
  LeafTile<TileShape, kVector> tile(shared, dy, x, sink);
  // The first leaf's unit also does the last leaf when the one reads and the other writes the carry.
  const bool chained = apart && n_leaves > 1 && leaves[0].begins == 0 && leaves[n_leaves - 1].ends == 0;
  if (chained && first == n_leaves - 1) return;
  for (int64_t i = first; i < n_leaves;) {
    tile.run(row, column, leaves[i], apart && n_leaves > 1);
    if (!apart)
      ++i;
    else
      i = chained && i == 0 ? n_leaves - 1 : n_leaves;
  }
}

template <class TileShape, class Small, bool kVector>
__global__ void __launch_bounds__(TileShape::kThreads, TileShape::kBlocks)
    weight_gradient_kernel(Operand dy, Operand x, const WeightGradientRows* leaves, int64_t n_leaves, Cut cut,
                           WeightGradientSink sink) {
  constexpr bool kCuts = !std::is_same_v<TileShape, Small>;
  static_assert(!kCuts || Small::kRows * kParts == TileShape::kRows);
  static_assert(Small::kColumns == TileShape::kColumns && Small::kThreads == TileShape::kThreads &&
                Small::bytes(true) <= TileShape::bytes(true));
  extern __shared__ float4 shared4[];
  float* shared = reinterpret_cast<float*>(shared4);
  const int64_t row_tiles = (dy.count + TileShape::kRows - 1) / TileShape::kRows;
  const int64_t tiles = row_tiles * ((x.count + TileShape::kColumns - 1) / TileShape::kColumns);
  const int64_t units = tiles * (cut.apart ? n_leaves : 1);
  for (int64_t item = blockIdx.x; item < cut.whole + (units - cut.whole) * kParts; item += gridDim.x) {
    const bool part = kCuts && item >= cut.whole;
    const int64_t unit = part ? cut.whole + (item - cut.whole) / kParts : item;
    const int row = static_cast<int>(unit % tiles % row_tiles) * TileShape::kRows;
    const int column = static_cast<int>(unit % tiles / row_tiles) * TileShape::kColumns;
    const int64_t first = unit / tiles;
    if (!part) {
      run_unit<TileShape, kVector>(shared, dy, x, leaves, n_leaves, cut.apart, first, row, column, sink);
    } else if constexpr (kCuts) {
      const int part_row = row + static_cast<int>((item - cut.whole) % kParts) * Small::kRows;
      if (part_row >= dy.count) continue;
      run_unit<Small, kVector>(shared, dy, x, leaves, n_leaves, cut.apart, first, part_row, column, sink);
    }
    __syncthreads();  // the two shapes lay out shared memory differently
  }
}

// Whether parts of the units left for a last round take less time than the units; they take about 1.4 times
// their share.
bool worth_parts(int64_t units, int sms) {
  const int64_t rest = units % sms;
  return units > rest && rest > 0 && tiles_of(rest * kParts, sms) * 7 < kParts * 5;
}

template <class TileShape, class Small, bool kVector>
void launch(const cuda::Context& context, const Operand& dy, const Operand& x,
            const WeightGradientRows* leaves, int64_t n_leaves, const WeightGradientSink& sink) {
  constexpr bool kCuts = !std::is_same_v<TileShape, Small>;
  const int sms = context.sms();
  const int64_t tiles = tiles_of(dy.count, TileShape::kRows) * tiles_of(x.count, TileShape::kColumns);
  // Apart costs atomic additions: where it saves rounds of the SMs.
  Cut cut = {};
  cut.apart = n_leaves > 1 && tiles_of(tiles * n_leaves, sms) * 33 < tiles_of(tiles, sms) * n_leaves * 32;
  const int64_t units = tiles * (cut.apart ? n_leaves : 1);
  cut.whole = kCuts && worth_parts(units, sms) ? units - units % sms : units;
  constexpr int kBytes = TileShape::bytes(true);
  auto* kernel = weight_gradient_kernel<TileShape, Small, kVector>;
  allow_shared(kernel, kBytes);
  // All copies of 16 bytes pass by the L1 cache: its memory may hold stages of more blocks.
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared),
              "preparing the gradient of a matrix (fp32)");
  const int64_t items = cut.whole + (units - cut.whole) * kParts;
  kernel<<<grid_for<TileShape>(context, items), TileShape::kThreads, kBytes, context.stream()>>>(
      dy, x, leaves, n_leaves, cut, sink);
  cuda::check_launch("the gradient of a matrix (fp32)");
}

// Measured on an H200: the largest tiles where they fill their rounds of two an SM, tiles of 128 x 64 where
// there are many, else small ones.
Shape shape_for(int64_t n, int64_t k, int64_t n_leaves, int sms) {
  const int64_t rows = tiles_of(n, 128), large = rows * tiles_of(k, 128) * n_leaves;
  if (large * 20 >= tiles_of(large, int64_t{2} * sms) * 2 * sms * 19) return Shape::k128x128;
  if (rows * tiles_of(k, 64) * n_leaves >= int64_t{10} * sms) return Shape::k128x64;
  return choose(n, k, sms, Shape::k64x64, [&](int64_t) { return n_leaves; });
}

}  // namespace

void weight_gradient(const cuda::Context& context, Shape shape, const float* dy, int64_t lddy, const float* x,
                     int64_t ldx, int64_t n, int64_t k, const WeightGradientRows* leaves, int64_t n_leaves,
                     const WeightGradientSink& sink) {
  if (n == 0 || k == 0 || n_leaves == 0) return;
  LOCKSTEP_CHECK(lddy <= kMaxStride && ldx <= kMaxStride);
  const Operand a = {dy, lddy, n}, b = {x, ldx, k};
  const bool vector = aligned(dy, lddy) && aligned(x, ldx) && n % 4 == 0 && k % 4 == 0 &&
                      reinterpret_cast<uintptr_t>(sink.image) % 16 == 0;
  if (!vector) return launch<Shape64x64, Shape64x64, false>(context, a, b, leaves, n_leaves, sink);
  if (shape == Shape::kAuto) shape = shape_for(n, k, n_leaves, context.sms());
  with_shape(shape, [&]<class TileShape>() {
    using Small = std::conditional_t<std::is_same_v<TileShape, Shape128x64>, Shape32x64Parts, TileShape>;
    launch<TileShape, Small, true>(context, a, b, leaves, n_leaves, sink);
  });
}

}  // namespace fp32

void matmul_weight_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy,
                                      const float* x, int64_t ldx, int64_t n, int64_t k,
                                      const WeightGradientRows* leaves, int64_t n_leaves,
                                      const WeightGradientSink& sink) {
  fp32::weight_gradient(context, fp32::Shape::kAuto, dy, lddy, x, ldx, n, k, leaves, n_leaves, sink);
}

}  // namespace lockstep::ops
