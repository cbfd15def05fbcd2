// SPDX-License-Identifier: Apache-2.0
// A block takes some pieces; a thread four neighbouring columns of them.
#include <algorithm>

#include "device/cuda/launch.h"
#include "numerics/element.cuh"
#include "numerics/fixed_point.h"
#include "ops/vector_gradient/vector_gradient_cuda.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using numerics::Pack;

constexpr int kThreads = 128;
constexpr int kColumns = kThreads * 4;
constexpr int kBlocksPerSm = 3;

// kGain: fma(dy, x * r, sum); else sum + dy. A thread adds its pieces as integers before it adds to the
// image: few blocks meet at one address.
template <typename T, bool kGain, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    piece_sums(const T* __restrict__ dy, const T* __restrict__ x, const float* __restrict__ inverse_rms,
               int64_t stride, int n, const VectorPiece* __restrict__ pieces, int n_pieces, float bound,
               unsigned long long* __restrict__ image, cuda::Fault fault) {
  constexpr int kUnroll = kGain ? 8 : 16;  // rows whose loads are in flight together
  const int column = static_cast<int>(blockIdx.y * kColumns + threadIdx.x * 4);
  if (column >= n) return;
  int64_t total[4] = {};
  bool in_range = true;
  for (int i = static_cast<int>(blockIdx.x); i < n_pieces; i += static_cast<int>(gridDim.x)) {
    const VectorPiece piece = pieces[i];
    float sum[4] = {};
    for (int first = piece.begin; first < piece.end; first += kUnroll) {
      Pack<T, 4> d[kUnroll], v[kUnroll];
      float r[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u >= piece.end) continue;
        const int64_t at = (first + u) * stride + column;
        d[u] = numerics::load_pack<4, kAligned>(dy + at, n - column);
        if constexpr (kGain) {
          v[u] = numerics::load_pack<4, kAligned>(x + at, n - column);
          r[u] = inverse_rms[first + u];
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u >= piece.end) continue;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if constexpr (kGain) {
            sum[k] = fmaf(d[u][k], v[u][k] * r[u], sum[k]);
          } else {
            sum[k] = sum[k] + d[u][k];
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // columns past the last: their sums are +0
      if (numerics::in_gradient_range(sum[k], bound)) {
        total[k] += numerics::gradient_to_fixed(sum[k]);
      } else {
        in_range = false;
      }
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (column + k < n) atomicAdd(image + column + k, static_cast<unsigned long long>(total[k]));
  }
  if (!in_range) cuda::report(fault);
}

template <typename T, bool kGain>
void gradient(const cuda::Context& context, const T* dy, const T* x, const float* inverse_rms, int64_t stride,
              int64_t n, const VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
              const cuda::Fault& fault) {
  if (n_pieces == 0 || n == 0) return;
  // A last, short group of columns would be read past the row's end: n too must be a multiple of 4.
  const bool aligned =
      n % 4 == 0 && numerics::packs_fit<4>(dy, stride) && (!kGain || numerics::packs_fit<4>(x, stride));
  const auto kernel = aligned ? piece_sums<T, kGain, true> : piece_sums<T, kGain, false>;
  const unsigned columns = cuda::blocks_for(n, kColumns);
  const unsigned rows = std::max(1U, static_cast<unsigned>(context.sms() * kBlocksPerSm) / columns);
  const dim3 grid(std::min(static_cast<unsigned>(n_pieces), rows), columns);
  kernel<<<grid, kThreads, 0, context.stream()>>>(dy, x, inverse_rms, stride, static_cast<int>(n), pieces,
                                                  static_cast<int>(n_pieces), bound,
                                                  reinterpret_cast<unsigned long long*>(image), fault);
  cuda::check_launch("gradient of a vector");
}

}  // namespace

void gain_gradient_fp32_cuda(const cuda::Context& context, const float* dy, const float* x,
                             const float* inverse_rms, int64_t h, const VectorPiece* pieces, int64_t n_pieces,
                             float bound, int64_t* image, const cuda::Fault& fault) {
  gradient<float, true>(context, dy, x, inverse_rms, h, h, pieces, n_pieces, bound, image, fault);
}
void gain_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, const Bf16* x,
                             const float* inverse_rms, int64_t h, const VectorPiece* pieces, int64_t n_pieces,
                             float bound, int64_t* image, const cuda::Fault& fault) {
  gradient<Bf16, true>(context, dy, x, inverse_rms, h, h, pieces, n_pieces, bound, image, fault);
}
void bias_gradient_fp32_cuda(const cuda::Context& context, const float* dy, int64_t lddy, int64_t n,
                             const VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
                             const cuda::Fault& fault) {
  gradient<float, false>(context, dy, nullptr, nullptr, lddy, n, pieces, n_pieces, bound, image, fault);
}
void bias_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, int64_t lddy, int64_t n,
                             const VectorPiece* pieces, int64_t n_pieces, float bound, int64_t* image,
                             const cuda::Fault& fault) {
  gradient<Bf16, false>(context, dy, nullptr, nullptr, lddy, n, pieces, n_pieces, bound, image, fault);
}

}  // namespace lockstep::ops
