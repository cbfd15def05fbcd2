// SPDX-License-Identifier: Apache-2.0
// Which tile of matmul_decode_tile.cuh for which shape. All choices give the same bits.
#include "core/check.h"
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/matmul/matmul_decode.h"
#include "ops/matmul/matmul_decode_tile.cuh"
#include "ops/matmul/matmul_pair_map.h"
#include "ops/matmul/matmul_tensor_map.h"

namespace lockstep::ops {
namespace {

struct Call {
  const cuda::Context& context;
  const Bf16* x;
  int64_t ldx;
  const Bf16* w;
  int64_t m, n, k;
  const MatmulForwardBf16& forward;
};

// share_w: tiles below one another that share the copies of W.
template <class T>
void run(const Call& c, int share_w = 1) {
  cuda::allow_shared<decode_tile_kernel<T>>(T::kSharedBytes, "a decode product");
  TileArguments p;
  p.epilogue = epilogue_arguments(c.forward, c.m, c.n);
  p.blocks = static_cast<int>((c.k + kDecodeDepth - 1) / kDecodeDepth);
  p.chunk_blocks = std::min(p.blocks, static_cast<int>(c.forward.chunk / kDecodeDepth));
  p.chunks = (p.blocks + p.chunk_blocks - 1) / p.chunk_blocks;
  p.share_w = share_w;
  if (T::kOutput == MatmulOutput::kSwiglu) p.half = static_cast<int>(c.n / 2);
  if (T::kOutput == MatmulOutput::kRope) p.half = static_cast<int>(c.forward.rope.head_size / 2);
  p.tokens_copied = static_cast<int>(std::min<int64_t>(T::kTokens, (c.m + 7) / 8 * 8));
  p.columns = static_cast<int>((c.n + T::kColumns - 1) / T::kColumns);
  const int64_t rows = (c.m + T::kTokens - 1) / T::kTokens;
  const int64_t clusters = (rows + p.share_w - 1) / p.share_w * p.columns;
  const auto size = static_cast<unsigned>(p.share_w * p.chunks);

  const CUtensorMap map_x = tensor_map(c.x, c.m, c.k, c.ldx, p.tokens_copied);
  const CUtensorMap map_w = pair_map(c.w, c.n, c.k, p.half, T::kPaired ? T::kColumns / 2 : T::kColumns);
  cuda::launch_early_clusters(c.context, "launching a decode product", decode_tile_kernel<T>,
                              dim3(static_cast<unsigned>(clusters) * size), size, T::kThreads,
                              T::kSharedBytes, map_w, map_x, p);
}

void swiglu(const Call& c) {
  if (c.m > 128) return run<DecodeTile<2, 152, MatmulOutput::kSwiglu, false, 1>>(c, 2);
  if (c.m > 64) return run<DecodeTile<2, 80, MatmulOutput::kSwiglu, false, 1>>(c);
  run<DecodeTile<1, 40, MatmulOutput::kSwiglu, false, 2>>(c);
}

void residual(const Call& c) {
  if (c.k <= c.forward.chunk) return run<DecodeTile<1, 32, MatmulOutput::kResidual, false, 2>>(c);
  if (c.m > 192) return run<DecodeTile<2, 112, MatmulOutput::kResidual, true, 1>>(c);
  if (c.m > 64) return run<DecodeTile<1, 64, MatmulOutput::kResidual, true, 2>>(c);
  run<DecodeTile<1, 40, MatmulOutput::kResidual, true, 2>>(c);
}

}  // namespace

bool matmul_decode_tiles(int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward) {
  if (m > kMatmulDecodeRows || n > kMatmulDecodeTileColumns) return false;
  switch (forward.output) {
    case MatmulOutput::kResidual:
      return k <= kDecodeMaxChunks * forward.chunk;
    case MatmulOutput::kRope:
      return k <= forward.chunk;
    case MatmulOutput::kSwiglu:
      return k <= forward.chunk && m > 32;
    default:
      return false;
  }
}

void matmul_decode_tile_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                                  int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward) {
  const Call call{context, x, ldx, w, m, n, k, forward};
  switch (forward.output) {
    case MatmulOutput::kResidual:
      return residual(call);
    case MatmulOutput::kRope:
      return run<DecodeTile<1, 32, MatmulOutput::kRope, false, 2>>(call);
    case MatmulOutput::kSwiglu:
      return swiglu(call);
    default:
      LOCKSTEP_CHECK(false);
  }
}

}  // namespace lockstep::ops
