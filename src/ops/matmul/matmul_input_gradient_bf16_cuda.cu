// SPDX-License-Identifier: Apache-2.0
// Input gradient: A = dy [m, n], B = W [n, k] as it lies, its columns contiguous.
#include "core/check.h"
#include "ops/matmul/matmul_product.h"

namespace lockstep::ops {
namespace {

constexpr int kInputGradientCluster = 2;

template <int kColumns, Fold kFold>
void run(const cuda::Context& context, const Bf16* dy, int64_t lddy, const Bf16* w, int64_t m, int64_t n,
         int64_t k, const EpilogueArguments& epilogue) {
  run_product<Product<kColumns, MatmulOutput::kBf16, 0, kFold, true, kInputGradientCluster>>(
      context, dy, lddy, w, k, m, k, n, numerics::kGradientChunk, epilogue, "launching an input gradient");
}

template <Fold kFold>
void choose(const cuda::Context& context, const Bf16* dy, int64_t lddy, const Bf16* w, int64_t m, int64_t n,
            int64_t k, const EpilogueArguments& epilogue) {
  if (tiling_cost(context, m, k, 224) < tiling_cost(context, m, k, 256)) {
    run<224, kFold>(context, dy, lddy, w, m, n, k, epilogue);
  } else {
    run<256, kFold>(context, dy, lddy, w, m, n, k, epilogue);
  }
}

}  // namespace

void matmul_input_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, int64_t lddy,
                                     const Bf16* w, int64_t m, int64_t n, int64_t k, Bf16* dx, int64_t lddx) {
  LOCKSTEP_CHECK(lddy % 8 == 0 && lddx % 8 == 0 && k % 8 == 0);
  if (m == 0 || k == 0) return;
  LOCKSTEP_CHECK(n > 0);
  EpilogueArguments epilogue;
  epilogue.m = static_cast<int>(m);
  epilogue.n = static_cast<int>(k);
  epilogue.out = dx;
  epilogue.ld_out = lddx;
  if (n > numerics::kGradientChunk) {
    choose<Fold::kMemory>(context, dy, lddy, w, m, n, k, epilogue);
  } else {
    choose<Fold::kNone>(context, dy, lddy, w, m, n, k, epilogue);
  }
}

}  // namespace lockstep::ops
