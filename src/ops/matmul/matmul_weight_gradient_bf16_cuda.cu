// SPDX-License-Identifier: Apache-2.0
// Weight gradient: which tile for which shape. The kernel is in matmul_weight_gradient_bf16_tile.cuh.
#include <algorithm>
#include <iterator>

#include "core/check.h"
#include "ops/matmul/matmul_weight_gradient_bf16_tile.cuh"

namespace lockstep::ops {
namespace {

struct Choice {
  int columns, across, down;
  double cost;  // of 64 tokens of a tile, relative: measured by bench/cuda/gemm_bench.cu
  void (*launch)(const cuda::Context&, const GradientOperands&, const WeightGradientBf16&);
};
template <int kColumns, int kAcross, int kDown>
constexpr Choice choice(double cost) {
  return {kColumns, kAcross, kDown, cost, &launch_weight_gradient<GradientTile<kColumns, kAcross, kDown>>};
}
const Choice kChoices[] = {choice<192, 1, 1>(1.0), choice<192, 2, 1>(1.01), choice<128, 1, 1>(0.8)};

// Rounds of the grid over pairs of a tile and a leaf, times the cost of a tile. One leaf is not counted: the
// first and the last are mostly cut.
double cost_of(const Choice& c, const cuda::Context& context, int64_t m, int64_t n, int64_t leaves) {
  const int64_t rows = kTileRows * c.down, columns = c.columns * c.across;
  const int64_t units =
      (m + rows - 1) / rows * ((n + columns - 1) / columns) * std::max<int64_t>(1, leaves - 1);
  const int64_t clusters = std::max(1, context.sms() / (c.across * c.down));
  return static_cast<double>((units + clusters - 1) / clusters) * c.cost;
}

}  // namespace

void matmul_weight_gradient_bf16_cuda(const cuda::Context& context, const Bf16* dy, int64_t lddy,
                                      const Bf16* x, int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                      const WeightGradientBf16& target) {
  LOCKSTEP_CHECK(lddy % 8 == 0 && ldx % 8 == 0);
  if (n == 0 || k == 0 || target.leaf_count == 0) return;
  const auto cheaper = [&](const Choice& a, const Choice& b) {
    return cost_of(a, context, k, n, target.leaf_count) < cost_of(b, context, k, n, target.leaf_count);
  };
  const Choice& best = *std::min_element(std::begin(kChoices), std::end(kChoices), cheaper);
  best.launch(context, {dy, lddy, x, ldx, rows, n, k}, target);
}

}  // namespace lockstep::ops
