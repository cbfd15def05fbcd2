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

// The same of kN neighbours in a row (Vector: as many floats), to `to`; chunk sums go as they are.
template <class Vector, int kN>
__device__ __forceinline__ void store(const Output& out, int64_t r, int64_t c, const float (&values)[4],
                                      float* to) {
  alignas(16) float v[kN];
#pragma unroll
  for (int e = 0; e < kN; ++e) v[e] = values[e];
  if (out.partial == nullptr) {
    alignas(16) float s[kN];
    if (out.bias != nullptr) {
      *reinterpret_cast<Vector*>(s) = *reinterpret_cast<const Vector*>(out.bias + c);
#pragma unroll
      for (int e = 0; e < kN; ++e) v[e] = v[e] + s[e];
    }
    if (out.residual != nullptr) {
      *reinterpret_cast<Vector*>(s) =
          *reinterpret_cast<const Vector*>(out.residual + r * out.ld_residual + c);
#pragma unroll
      for (int e = 0; e < kN; ++e) v[e] = s[e] + v[e];
    }
  }
  *reinterpret_cast<Vector*>(to) = *reinterpret_cast<const Vector*>(v);
}

// y(rows x columns): a (rows, steps contiguous) times b over `steps`.
template <class TileShape, bool kStepsContiguousB, bool kWide>
__global__ void __launch_bounds__(TileShape::kThreads, TileShape::kBlocks)
    product_kernel(Operand a, Operand b, int64_t steps, int64_t chunk, int64_t chunks, Output out) {
  extern __shared__ float4 shared[];
  constexpr int kSteps = TileShape::kSteps, kThreads = TileShape::kThreads;
  using LoaderA = StageLoader<true, false, TileShape::kRows, kSteps, kThreads, TileShape::kRowPitch>;
  using LoaderB =
      StageLoader<kStepsContiguousB, kWide, TileShape::kColumns, kSteps, kThreads, TileShape::kColumnPitch>;
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
    tile.clear();
    for (int64_t at = 0;;) {
      const int64_t n = min(chunk, length - at);
      tile.run(loader_a, loader_b, n);
      at += n;
      if (at >= length) break;
      tile.fold(at == chunk);
    }
    if (length > chunk) tile.add_sums();

    // Results leave through shared memory, in rolled loops: in registers the chains want another order, and
    // the code stays small.
    float* y = out.partial == nullptr ? out.y : out.partial + part * a.count * b.count;
    const int64_t ldy = out.partial == nullptr ? out.ldy : b.count;
    constexpr int kTN = TileShape::kTN, kColumnsOut = Tile<TileShape>::kColumnsOut;
#pragma unroll
    for (int i = 0; i < TileShape::kTM; i += 4)
#pragma unroll
      for (int j = 0; j < kTN; j += kColumnsOut) {
        tile.put_out(i, j);
#pragma unroll 1
        for (int e = 0; e < 4; ++e) {
          const int64_t r = row + tile.row_of(i) + e;
          if (r >= a.count) break;
#pragma unroll
          for (int g = 0; g < kColumnsOut && g < kTN - j; g += 4) {
            const int64_t c = column + tile.column_of(j + g);
            if (c >= b.count) continue;
            float v[4];
#pragma unroll
            for (int n = 0; n < 4 && n < kTN - j - g; ++n) v[n] = *tile.out(e, g + n);
            float* to = y + r * ldy + c;
            if (!out.vector) {
#pragma unroll
              for (int n = 0; n < 4 && n < kTN - j - g; ++n)
                if (c + n < b.count) to[n] = out.partial == nullptr ? finish(out, r, c + n, v[n]) : v[n];
            } else if (kTN - j - g >= 4) {
              store<float4, 4>(out, r, c, v, to);
            } else {
              store<float2, 2>(out, r, c, v, to);
            }
          }
        }
      }
    __syncthreads();  // the next tile's first stages come where the results were
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

template <class TileShape, bool kStepsContiguousB, bool kWide>
void launch_tiles(const cuda::Context& context, const Product& p) {
  const int64_t tiles = tiles_of(p.a.count, TileShape::kRows) * tiles_of(p.b.count, TileShape::kColumns);
  const int64_t parts = split(tiles, p.chunks(), context.sms());
  Output out = p.out;
  out.partial = partial_for(context, p, parts);
  const int bytes = TileShape::bytes(parts == 1 && p.steps > p.chunk);
  auto* kernel = product_kernel<TileShape, kStepsContiguousB, kWide>;
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
  LOCKSTEP_CHECK(p.a.ld <= kMaxStride && p.b.ld <= kMaxStride);
  p.out.vector = p.b.count % 4 == 0 && aligned(p.out.y, p.out.ldy) && aligned(p.out.bias, 0) &&
                 aligned(p.out.residual, p.out.ld_residual);
  if constexpr (kStepsContiguousB) {
    const bool skinny =
        aligned(p.a.p, p.a.ld) && aligned(p.b.p, p.b.ld) && p.steps % 4 == 0 && p.a.count <= kSkinnyRows;
    LOCKSTEP_CHECK(shape != Shape::kSkinny || skinny);
    if (shape == Shape::kSkinny || (shape == Shape::kAuto && skinny)) {
      if (p.a.count <= 4) return launch_skinny<4>(context, p);
      if (p.a.count <= 8) return launch_skinny<8>(context, p);
      return launch_skinny<16>(context, p);
    }
  } else if (!aligned(p.b.p, p.b.ld) || p.b.count % 4 != 0) {
    return launch_tiles<Shape64x64, false, false>(context, p);
  }
  if (shape == Shape::kAuto) {
    const int sms = context.sms();
    shape = choose(p.a.count, p.b.count, sms, Shape::k128x128,
                   [&](int64_t tiles) { return split(tiles, p.chunks(), sms); });
  }
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
