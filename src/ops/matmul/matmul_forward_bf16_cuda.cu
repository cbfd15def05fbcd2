// SPDX-License-Identifier: Apache-2.0
// Forward product of many rows: which tile for which shape and epilogue.
#include "core/check.h"
#include "ops/matmul/matmul_decode.h"
#include "ops/matmul/matmul_product.h"

namespace lockstep::ops {
namespace {

constexpr int kForwardCluster = 2;

struct Call {
  const cuda::Context& context;
  const Bf16* x;
  int64_t ldx;
  const Bf16* w;
  int64_t m, n, k;
  const MatmulForwardBf16& forward;
};

template <int kColumns, MatmulOutput kOutput, int kHeadSize, Fold kFold>
void run(const Call& c) {
  run_product<Product<kColumns, kOutput, kHeadSize, kFold, false, kForwardCluster>>(
      c.context, c.x, c.ldx, c.w, c.k, c.m, c.n, c.k, c.forward.chunk,
      epilogue_arguments(c.forward, c.m, c.n), "launching a forward product");
}

template <int kFirst, int kSecond, MatmulOutput kOutput, int kHeadSize, Fold kFold>
void cheaper(const Call& c) {
  if (tiling_cost(c.context, c.m, c.n, kFirst) <= tiling_cost(c.context, c.m, c.n, kSecond)) {
    run<kFirst, kOutput, kHeadSize, kFold>(c);
  } else {
    run<kSecond, kOutput, kHeadSize, kFold>(c);
  }
}

// Tiles of several chunks keep their sums in registers beside the accumulators: 192 columns at most, and 128
// beside the warps that make act.
void one_chunk(const Call& c) {
  switch (c.forward.output) {
    case MatmulOutput::kFloat:
      return run<256, MatmulOutput::kFloat, 0, Fold::kNone>(c);
    case MatmulOutput::kBf16:
      return cheaper<256, 192, MatmulOutput::kBf16, 0, Fold::kNone>(c);
    case MatmulOutput::kResidual:
      return cheaper<256, 224, MatmulOutput::kResidual, 0, Fold::kNone>(c);
    case MatmulOutput::kRope:
      if (c.forward.rope.head_size == 64) return cheaper<256, 192, MatmulOutput::kRope, 64, Fold::kNone>(c);
      return run<256, MatmulOutput::kRope, 128, Fold::kNone>(c);
    case MatmulOutput::kSwiglu:
      return run<256, MatmulOutput::kSwiglu, 0, Fold::kNone>(c);
  }
}

void several_chunks(const Call& c) {
  switch (c.forward.output) {
    case MatmulOutput::kFloat:
      return run<192, MatmulOutput::kFloat, 0, Fold::kRegisters>(c);
    case MatmulOutput::kBf16:
      return run<192, MatmulOutput::kBf16, 0, Fold::kRegisters>(c);
    case MatmulOutput::kResidual:
      return cheaper<192, 128, MatmulOutput::kResidual, 0, Fold::kRegisters>(c);
    case MatmulOutput::kRope:
      if (c.forward.rope.head_size == 64) return run<192, MatmulOutput::kRope, 64, Fold::kRegisters>(c);
      return run<128, MatmulOutput::kRope, 128, Fold::kRegisters>(c);
    case MatmulOutput::kSwiglu:
      return run<128, MatmulOutput::kSwiglu, 0, Fold::kRegisters>(c);
  }
}

}  // namespace

void matmul_forward_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                              int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward) {
  LOCKSTEP_CHECK(k > 0 && ldx % 8 == 0 && k % 8 == 0 && forward.ld_out % 2 == 0 &&
                 forward.chunk % kTileDepth == 0);
  LOCKSTEP_CHECK(forward.output != MatmulOutput::kSwiglu || n % 16 == 0);
  LOCKSTEP_CHECK(
      forward.output != MatmulOutput::kRope ||
      ((forward.rope.head_size == 64 || forward.rope.head_size == 128) && n % forward.rope.head_size == 0));
  if (m == 0 || n == 0) return;
  if (matmul_makes_tiles(m, n, k, forward)) {
    matmul_vocabulary_bf16_cuda(context, x, ldx, w, m, n, k, forward);
    return;
  }
  LOCKSTEP_CHECK(forward.tile_sum == nullptr);
  if (matmul_decode_tiles(m, n, k, forward)) {
    matmul_decode_tile_bf16_cuda(context, x, ldx, w, m, n, k, forward);
    return;
  }
  if (matmul_decodes(context, m, n)) {
    matmul_decode_bf16_cuda(context, x, ldx, w, m, n, k, forward);
    return;
  }
  LOCKSTEP_CHECK(forward.ld_out % (forward.output == MatmulOutput::kFloat ? 4 : 8) == 0);
  const Call call{context, x, ldx, w, m, n, k, forward};
  if (k <= forward.chunk) {
    one_chunk(call);
  } else {
    several_chunks(call);
  }
}

int64_t matmul_forward_bf16_scratch(const cuda::Context& context, int64_t m, int64_t n, int64_t k,
                                    int64_t chunk) {
  return matmul_decodes(context, m, n) ? matmul_decode_bf16_scratch(context, m, n, k, chunk) : 0;
}

}  // namespace lockstep::ops
