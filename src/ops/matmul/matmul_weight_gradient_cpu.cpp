// SPDX-License-Identifier: Apache-2.0
// The gradient of the matrix: steps are rows of dy and x. The image is several times the size of everything
// else, so tiles follow each other along its rows.
#include <algorithm>
#include <atomic>

#include "core/check.h"
#include "numerics/constants.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_blocked.h"
#include "ops/matmul/matmul_pack.h"

namespace lockstep::ops {
namespace {

using numerics::kGradientChunk;

constexpr double kCostOfPackingB = 0.4;  // see divide()
constexpr int64_t kSegment = 256;
constexpr int64_t kPanelFloats = 64 * 1024;  // of x in use at a time: half of a 512 KiB L2 cache

class WeightGradientProduct {
 public:
  WeightGradientProduct(const MatmulKernels& kernels, const float* dy, int64_t lddy, const float* x,
                        int64_t ldx, int64_t rows, int64_t k, const WeightGradientTarget& target,
                        std::atomic<bool>* in_range)
      : kernels_(kernels),
        dy_(dy),
        lddy_(lddy),
        x_(x),
        ldx_(ldx),
        rows_(rows),
        k_(k),
        target_(target),
        in_range_(in_range) {}

  const MatmulKernels& kernels() const { return kernels_; }
  int64_t position() const { return target_.rows_before; }
  int64_t steps() const { return rows_; }
  int64_t chunk() const { return kGradientChunk; }
  bool starts_from_zero() const { return target_.begins; }
  bool packs_b() const { return true; }
  void pack_a(const Segment& segment, const int64_t* begins, int64_t tiles, float* out) const {
    pack_narrow(dy_ + segment.begin * lddy_, lddy_, segment.steps, begins, tiles, out);
  }
  const float* panels(const BlockRange& range, const Segment& segment, float* out, int64_t* stride) const {
    const int64_t column = range.panel_begin * kernels_.width;
    *stride = segment.steps * kernels_.width;
    pack_panels(x_ + segment.begin * ldx_ + column, ldx_, segment.steps,
                std::min(k_, range.panel_end * kernels_.width) - column, kernels_.width, *stride, out);
    return out;
  }
  void load(int64_t row, int64_t rows, int64_t panel, float* acc, float* sum) const {
    read_tile(target_.carry, row, rows, panel, acc);
    if (sum != nullptr && target_.rows_before > kGradientChunk)
      read_tile(target_.chunk_sum, row, rows, panel, sum);
  }
  // The image's lines of the tile to the right: a short chain is over before memory answers.
  void will_finish(int64_t row, int64_t rows, int64_t panel) const {
    if (!target_.ends) return;
    const int64_t* at = target_.image + row * k_ + (panel + 1) * kernels_.width;
    for (int64_t r = 0; r < rows; ++r, at += k_) {
      for (int64_t j = 0; j < kernels_.width; j += 8) prefetch_line(at + j);
    }
  }
  void finish(int64_t row, int64_t rows, int64_t panel, float* acc, float* sum) const {
    const int64_t column = panel * kernels_.width;
    const int64_t columns = std::min(kernels_.width, k_ - column);
    const int64_t at = row * k_ + column;
    if (!target_.ends) {
      kernels_.store(acc, rows, columns, nullptr, nullptr, 0, target_.carry + at, k_);
      if (sum != nullptr) kernels_.store(sum, rows, columns, nullptr, nullptr, 0, target_.chunk_sum + at, k_);
      return;
    }
    if (sum != nullptr) kernels_.add_to_sum(acc, rows * kernels_.width, sum);
    if (!kernels_.add_to_image(sum != nullptr ? sum : acc, rows, columns, target_.bound, target_.image + at,
                               k_))
      in_range_->store(false, std::memory_order_relaxed);
  }

 private:
  void read_tile(const float* from, int64_t row, int64_t rows, int64_t panel, float* tile) const {
    const int64_t column = panel * kernels_.width;
    const int64_t columns = std::min(kernels_.width, k_ - column);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(from + (row + r) * k_ + column, columns, tile + r * kernels_.width);
      std::fill(tile + r * kernels_.width + columns, tile + (r + 1) * kernels_.width, 0.0F);
    }
  }

  const MatmulKernels& kernels_;
  const float* dy_;
  int64_t lddy_;
  const float* x_;
  int64_t ldx_;
  int64_t rows_;
  int64_t k_;
  const WeightGradientTarget& target_;
  std::atomic<bool>* in_range_;
};

}  // namespace

bool matmul_weight_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* x,
                                int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                const WeightGradientTarget& target) {
  LOCKSTEP_CHECK(!target.begins || target.rows_before == 0);
  const MatmulKernels& kernels = matmul_kernels(context);
  std::atomic<bool> in_range{true};
  const WeightGradientProduct product(kernels, dy, lddy, x, ldx, rows, k, target, &in_range);
  const int64_t panels = divide_up(k, kernels.width);
  const int64_t steps = std::clamp<int64_t>(rows, 1, kSegment);
  const BlockSizes sizes = {.steps = kSegment,
                            .rows = 768,
                            .panels = 1024 / kernels.width,
                            .a_floats = 768 * kSegment,  // only a tile of it is in use at a time
                            .panels_inside = std::max<int64_t>(1, kPanelFloats / (steps * kernels.width))};
  run_blocks(context, product, divide(n, panels, kernels.rows, context.threads(), kCostOfPackingB), sizes);
  return in_range.load();
}

}  // namespace lockstep::ops
