// SPDX-License-Identifier: Apache-2.0
// Forward product and gradient of the input, binary32. Tiles of outputs, each in one block; where there are
// few tiles and several chunks, a block takes one chunk and a second launch adds the chunk sums in order.
#include <cuda_pipeline_primitives.h>

#include "numerics/constants.h"
#include "ops/matmul/matmul_fp32_launch.cuh"

namespace lockstep::ops {
namespace fp32 {
namespace {

using numerics::kForwardChunk;
using numerics::kGradientChunk;

struct Output {
  float* y;
  int64_t ldy;
  const float* bias;
  const float* residual;
  int64_t ld_residual;
  float* partial;  // [chunks][rows][columns] raw chunk sums instead of y; null: whole chains
  bool vector;     // 16-byte accesses to all of these
};

__device__ __forceinline__ float finish(const Output& out, int64_t r, int64_t c, float value) {
  if (out.bias != nullptr) value = value + out.bias[c];
  if (out.residual != nullptr) value = out.residual[r * out.ld_residual + c] + value;
  return value;
}

// y(rows x columns): a (rows, steps contiguous) times b over `steps`.
template <class TileShape, bool kStepsContiguousB, bool kVector>
__global__ void __launch_bounds__(TileShape::kThreads, TileShape::kBlocks)
    product_kernel(Operand a, Operand b, int64_t steps, int64_t chunk, int64_t chunks, Output out) {
  extern __shared__ float4 shared[];
  using LoaderA = StageLoader<true, kVector, TileShape::kRows, TileShape::kSteps, TileShape::kThreads,
                              TileShape::kRowPitch>;
  using LoaderB = StageLoader<kStepsContiguousB, kVector, TileShape::kColumns, TileShape::kSteps,
                              TileShape::kThreads, TileShape::kColumnPitch>;
  Tile<TileShape> tile(reinterpret_cast<float*>(shared));
  const int64_t row_tiles = (a.count + TileShape::kRows - 1) / TileShape::kRows;
  const int64_t column_tiles = (b.count + TileShape::kColumns - 1) / TileShape::kColumns;
  const int64_t items = row_tiles * column_tiles * chunks;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t row = item % row_tiles * TileShape::kRows;
    const int64_t column = item / row_tiles % column_tiles * TileShape::kColumns;
    const int64_t part = item / row_tiles / column_tiles;
    const int64_t begin = part * chunk;
    const int64_t length = out.partial == nullptr ? steps : min(chunk, steps - begin);
    LoaderA loader_a(a, row, begin);
    LoaderB loader_b(b, column, begin);
    int folds = 0;
    tile.clear();
    tile.run(loader_a, loader_b, length, chunk, &folds);
    if (folds > 0) tile.add_sums();

    float* y = out.partial == nullptr ? out.y : out.partial + part * a.count * b.count;
    const int64_t ldy = out.partial == nullptr ? out.ldy : b.count;
#pragma unroll
    for (int i = 0; i < TileShape::kTM; ++i) {
      const int64_t r = row + tile.row_of(i);
      if (r >= a.count) continue;
#pragma unroll
      for (int j = 0; j < TileShape::kTN; j += 4) {
        const int64_t c = column + tile.column_of(j);
        float v[4] = {tile.acc[i][j], tile.acc[i][j + 1], tile.acc[i][j + 2], tile.acc[i][j + 3]};
        if (kVector && out.vector) {
          if (c >= b.count) continue;
          if (out.partial == nullptr) {
            if (out.bias != nullptr) {
              const float4 s = *reinterpret_cast<const float4*>(out.bias + c);
              v[0] = v[0] + s.x, v[1] = v[1] + s.y, v[2] = v[2] + s.z, v[3] = v[3] + s.w;
            }
            if (out.residual != nullptr) {
              const float4 s = *reinterpret_cast<const float4*>(out.residual + r * out.ld_residual + c);
              v[0] = s.x + v[0], v[1] = s.y + v[1], v[2] = s.z + v[2], v[3] = s.w + v[3];
            }
          }
          *reinterpret_cast<float4*>(y + r * ldy + c) = make_float4(v[0], v[1], v[2], v[3]);
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (c + e >= b.count) break;
            y[r * ldy + c + e] = out.partial == nullptr ? finish(out, r, c + e, v[e]) : v[e];
          }
        }
      }
    }
  }
}

__global__ void __launch_bounds__(256)
    fold_kernel(const float* partial, int64_t rows, int64_t columns, int64_t chunks, Output out) {
  const int64_t count = rows * columns;
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < count; i += gridDim.x * int64_t{256}) {
    float sum = partial[i];
    for (int64_t part = 1; part < chunks; ++part) sum = sum + partial[part * count + i];
    out.y[i / columns * out.ldy + i % columns] = finish(out, i / columns, i % columns, sum);
  }
}

// The forward product of few rows. A block streams kSkinnyColumns rows of W through shared memory in stages
// of kSkinnySteps; a lane has one row of W, a warp every fourth row of x.
constexpr int kSkinnyColumns = 32, kSkinnySteps = 64, kSkinnyStages = 4, kSkinnyPitch = kSkinnySteps + 4;
constexpr int kSkinnyWarps = 4, kSkinnyThreads = 32 * kSkinnyWarps;

template <int kRows>  // of x, at most, a multiple of kSkinnyWarps
__global__ void __launch_bounds__(kSkinnyThreads)
    skinny_kernel(Operand x, Operand w, int64_t steps, int64_t chunk, int64_t chunks, Output out) {
  constexpr int kStageRows = kSkinnyColumns + kRows;
  constexpr int kMine = kRows / kSkinnyWarps;
  extern __shared__ float4 shared4[];
  float* shared = reinterpret_cast<float*>(shared4);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int64_t column_tiles = (w.count + kSkinnyColumns - 1) / kSkinnyColumns;
  for (int64_t item = blockIdx.x; item < column_tiles * chunks; item += gridDim.x) {
    const int64_t column = item % column_tiles * kSkinnyColumns;
    const int64_t part = item / column_tiles;
    const int64_t begin = part * chunk;
    const int64_t end = out.partial == nullptr ? steps : min(steps, begin + chunk);
    const int64_t n_stages = (end - begin + kSkinnySteps - 1) / kSkinnySteps;

    const auto fetch = [&](int64_t stage) {
      if (stage < n_stages) {
        float* to = shared + stage % kSkinnyStages * (kStageRows * kSkinnyPitch);
        const int64_t first = begin + stage * kSkinnySteps;
        const int pieces = static_cast<int>(min(end - first, int64_t{kSkinnySteps}) / 4);  // steps % 4 == 0
        for (int f = static_cast<int>(threadIdx.x); f < kStageRows * (kSkinnySteps / 4);
             f += kSkinnyThreads) {
          const int r = f / (kSkinnySteps / 4), piece = f % (kSkinnySteps / 4);
          if (piece >= pieces) continue;
          const float* from = r < kSkinnyColumns ? w.p + min(column + r, w.count - 1) * w.ld
                                                 : x.p + min(int64_t{r} - kSkinnyColumns, x.count - 1) * x.ld;
          __pipeline_memcpy_async(to + r * kSkinnyPitch + piece * 4, from + first + piece * 4, 16);
        }
      }
      __pipeline_commit();
    };

    float acc[kMine], sum[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) acc[i] = sum[i] = 0.0F;
    bool folded = false;
    for (int s = 0; s < kSkinnyStages - 1; ++s) fetch(s);
    for (int64_t stage = 0; stage < n_stages; ++stage) {
      __pipeline_wait_prior(kSkinnyStages - 2);
      __syncthreads();
      fetch(stage + kSkinnyStages - 1);
      const int64_t first = stage * kSkinnySteps;
      if (first > 0 && first % chunk == 0) {
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          sum[i] = folded ? sum[i] + acc[i] : acc[i];
          acc[i] = 0.0F;
        }
        folded = true;
      }
      const float* from = shared + stage % kSkinnyStages * (kStageRows * kSkinnyPitch);
      const float* from_w = from + lane * kSkinnyPitch;
      const float* from_x = from + (kSkinnyColumns + warp) * kSkinnyPitch;
      const int n = static_cast<int>(min(end - begin - first, int64_t{kSkinnySteps}));
      if (warp < x.count) {
#pragma unroll 4
        for (int s = 0; s < n; s += 4) {
          const float4 b = *reinterpret_cast<const float4*>(from_w + s);
#pragma unroll
          for (int i = 0; i < kMine; ++i) {
            const float4 a = *reinterpret_cast<const float4*>(from_x + i * kSkinnyWarps * kSkinnyPitch + s);
            acc[i] = __fmaf_rn(a.x, b.x, acc[i]);
            acc[i] = __fmaf_rn(a.y, b.y, acc[i]);
            acc[i] = __fmaf_rn(a.z, b.z, acc[i]);
            acc[i] = __fmaf_rn(a.w, b.w, acc[i]);
          }
        }
      }
    }
    const int64_t c = column + lane;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int64_t r = warp + i * kSkinnyWarps;
      if (r >= x.count || c >= w.count) continue;
      const float value = folded ? sum[i] + acc[i] : acc[i];
      if (out.partial == nullptr)
        out.y[r * out.ldy + c] = finish(out, r, c, value);
      else
        out.partial[(part * x.count + r) * w.count + c] = value;
    }
    __pipeline_wait_prior(0);
    __syncthreads();
  }
}

// Chunks that go to blocks of their own: where the tiles alone do not fill the SMs.
int64_t split(int64_t tiles, int64_t chunks, int sms) {
  return chunks > 1 && tiles < 2 * sms ? chunks : 1;
}

struct Product {
  Operand a, b;
  int64_t steps, chunk;
  Output out;
  int64_t chunks() const { return std::max<int64_t>(1, tiles_of(steps, chunk)); }
};

// Scratch for the chunk sums, where the chunks are split.
float* partial_for(const cuda::Context& context, const Product& p, int64_t parts) {
  if (parts == 1) return nullptr;
  return static_cast<float*>(context.scratch(parts * p.a.count * p.b.count * 4));
}

void fold(const cuda::Context& context, const Product& p, const float* partial, int64_t parts) {
  if (parts == 1) return;
  const int64_t blocks = std::min<int64_t>(tiles_of(p.a.count * p.b.count, 256), int64_t{context.sms()} * 8);
  fold_kernel<<<static_cast<unsigned>(blocks), 256, 0, context.stream()>>>(partial, p.a.count, p.b.count,
                                                                           parts, p.out);
  cuda::check_launch("adding the chunks of a product (fp32)");
}

template <class TileShape, bool kStepsContiguousB, bool kVector>
void launch_tiles(const cuda::Context& context, const Product& p) {
  const int64_t tiles = tiles_of(p.a.count, TileShape::kRows) * tiles_of(p.b.count, TileShape::kColumns);
  const int64_t parts = split(tiles, p.chunks(), context.sms());
  Output out = p.out;
  out.partial = partial_for(context, p, parts);
  const int bytes = TileShape::bytes(parts == 1 && p.steps > p.chunk);
  auto* kernel = product_kernel<TileShape, kStepsContiguousB, kVector>;
  allow_shared(kernel, bytes);
  kernel<<<grid_for<TileShape>(context, tiles * parts), TileShape::kThreads, bytes, context.stream()>>>(
      p.a, p.b, p.steps, p.chunk, parts, out);
  cuda::check_launch("a product (fp32)");
  fold(context, p, out.partial, parts);
}

template <int kRows>
void launch_skinny(const cuda::Context& context, const Product& p) {
  const int64_t tiles = tiles_of(p.b.count, kSkinnyColumns);
  const int64_t parts = split(tiles, p.chunks(), context.sms());
  Output out = p.out;
  out.partial = partial_for(context, p, parts);
  constexpr int kBytes = kSkinnyStages * (kSkinnyColumns + kRows) * kSkinnyPitch * 4;
  auto* kernel = skinny_kernel<kRows>;
  allow_shared(kernel, kBytes);
  const int64_t items = tiles * parts;
  const int64_t grid =
      context.sms() == context.info().sms ? items : std::min<int64_t>(items, context.sms() * 4);
  kernel<<<static_cast<unsigned>(grid), kSkinnyThreads, kBytes, context.stream()>>>(p.a, p.b, p.steps,
                                                                                    p.chunk, parts, out);
  cuda::check_launch("a product of few rows (fp32)");
  fold(context, p, out.partial, parts);
}

template <bool kStepsContiguousB>
void product(const cuda::Context& context, Shape shape, Product p) {
  if (p.a.count == 0 || p.b.count == 0) return;
  const bool vector_b = aligned(p.b.p, p.b.ld) && (kStepsContiguousB || p.b.count % 4 == 0);
  const bool vector = aligned(p.a.p, p.a.ld) && vector_b;
  p.out.vector = p.b.count % 4 == 0 && aligned(p.out.y, p.out.ldy) && aligned(p.out.bias, 0) &&
                 aligned(p.out.residual, p.out.ld_residual);
  if constexpr (kStepsContiguousB) {
    const bool skinny = vector && p.steps % 4 == 0 && p.a.count <= kSkinnyRows;
    LOCKSTEP_CHECK(shape != Shape::kSkinny || skinny);
    if (shape == Shape::kSkinny || (shape == Shape::kAuto && skinny)) {
      if (p.a.count <= 4) return launch_skinny<4>(context, p);
      if (p.a.count <= 8) return launch_skinny<8>(context, p);
      return launch_skinny<16>(context, p);
    }
  }
  if (shape == Shape::kAuto) {
    // The gradient of the input reads rows of W: in long chains large tiles pay.
    constexpr ShapeRates kForward = {0.9, 1.0, 0.78}, kGradient = {1.0, 1.0, 0.9},
                         kLongGradient = {1.0, 0.78, 0.75};
    shape = choose(p.a.count, p.b.count, context.sms(),
                   kStepsContiguousB ? kForward
                   : p.steps > 4096  ? kLongGradient
                                     : kGradient);
  }
  if (!vector) return launch_tiles<Shape64x64, kStepsContiguousB, false>(context, p);
  with_shape(shape, [&]<class TileShape>() { launch_tiles<TileShape, kStepsContiguousB, true>(context, p); });
}

}  // namespace

void forward(const cuda::Context& context, Shape shape, const float* x, int64_t ldx, const float* w,
             int64_t m, int64_t n, int64_t k, const MatmulEpilogue& epilogue, float* y, int64_t ldy) {
  const Output out = {y, ldy, epilogue.bias, epilogue.residual, epilogue.ld_residual, nullptr, false};
  product<true>(context, shape, {{x, ldx, m}, {w, k, n}, k, kForwardChunk, out});
}

void input_gradient(const cuda::Context& context, Shape shape, const float* dy, int64_t lddy, const float* w,
                    int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx) {
  const Output out = {dx, lddx, nullptr, nullptr, 0, nullptr, false};
  product<false>(context, shape, {{dy, lddy, m}, {w, k, k}, n, kGradientChunk, out});
}

}  // namespace fp32

void matmul_forward_fp32_cuda(const cuda::Context& context, const float* x, int64_t ldx, const float* w,
                              int64_t m, int64_t n, int64_t k, const MatmulEpilogue& epilogue, float* y,
                              int64_t ldy) {
  fp32::forward(context, fp32::Shape::kAuto, x, ldx, w, m, n, k, epilogue, y, ldy);
}

void matmul_input_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy,
                                     const float* w, int64_t m, int64_t n, int64_t k, float* dx,
                                     int64_t lddx) {
  fp32::input_gradient(context, fp32::Shape::kAuto, dy, lddy, w, m, n, k, dx, lddx);
}

int64_t matmul_fp32_scratch_bytes(int64_t m, int64_t outputs, int64_t steps) {
  return fp32::tiles_of(steps, numerics::kForwardChunk) * m * outputs * 4;
}

}  // namespace lockstep::ops
