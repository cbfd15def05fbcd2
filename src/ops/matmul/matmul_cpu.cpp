// SPDX-License-Identifier: Apache-2.0
// The forward product. Up to kMaxSkinnyRows rows are bound by the memory that holds W: several panels are
// read side by side. More rows: blocks (matmul_blocked.h), W's panels being packed already.
#include <algorithm>

#include "core/check.h"
#include "numerics/constants.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_blocked.h"
#include "ops/matmul/matmul_pack.h"

namespace lockstep::ops {
namespace {

using numerics::kForwardChunk;

constexpr double kCostOfReadingB = 0.1;  // see divide()

class ForwardProduct {
 public:
  ForwardProduct(const MatmulKernels& kernels, const float* x, int64_t ldx, const PackedMatrix& w,
                 const MatmulEpilogue& epilogue, float* y, int64_t ldy)
      : kernels_(kernels), x_(x), ldx_(ldx), w_(w), epilogue_(epilogue), y_(y), ldy_(ldy) {}

  const MatmulKernels& kernels() const { return kernels_; }
  int64_t position() const { return 0; }
  int64_t steps() const { return w_.k(); }
  int64_t chunk() const { return kForwardChunk; }
  bool starts_from_zero() const { return true; }
  bool packs_b() const { return false; }
  void pack_a(const Segment& segment, const int64_t* begins, int64_t tiles, float* out) const {
    pack_rows(x_ + segment.begin, ldx_, segment.steps, begins, tiles, out);
  }
  const float* panels(const BlockRange& range, const Segment& segment, float*, int64_t* stride) const {
    *stride = w_.width() * w_.k();
    return w_.panel(range.panel_begin) + segment.begin * w_.width();
  }
  void load(int64_t, int64_t, int64_t, float*, float*) const {}
  void will_finish(int64_t, int64_t, int64_t) const {}
  void finish(int64_t row, int64_t rows, int64_t panel, float* acc, float* sum) const {
    if (sum != nullptr) kernels_.add_to_sum(acc, rows * kernels_.width, sum);
    const int64_t column = panel * kernels_.width;
    kernels_.store(
        sum != nullptr ? sum : acc, rows, std::min(kernels_.width, w_.n() - column),
        epilogue_.bias == nullptr ? nullptr : epilogue_.bias + column,
        epilogue_.residual == nullptr ? nullptr : epilogue_.residual + row * epilogue_.ld_residual + column,
        epilogue_.ld_residual, y_ + row * ldy_ + column, ldy_);
  }
  // Rows [0, rows) of x, at most kMaxSkinnyRows, times panels [begin, end).
  void run_skinny(int64_t rows, int64_t begin, int64_t end) const;

 private:
  const MatmulKernels& kernels_;
  const float* x_;
  int64_t ldx_;
  const PackedMatrix& w_;
  const MatmulEpilogue& epilogue_;
  float* y_;
  int64_t ldy_;
};

void ForwardProduct::run_skinny(int64_t rows, int64_t begin, int64_t end) const {
  alignas(64) float tiles[kMaxSkinnyPanels * kMaxSkinnyRows * kMaxTileWidth];
  alignas(64) float sums[kMaxSkinnyPanels * kMaxSkinnyRows * kMaxTileWidth];
  const int64_t groups = divide_up(end - begin, kernels_.skinny_panels[rows]);
  const int64_t tile_floats = rows * kernels_.width;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t panel = begin + (end - begin) * group / groups;
    const int64_t panels = begin + (end - begin) * (group + 1) / groups - panel;
    for (int64_t t = 0; t < steps(); t += kForwardChunk) {
      kernels_.skinny[rows][panels](std::min(kForwardChunk, steps() - t), x_ + t, ldx_,
                                    w_.panel(panel) + t * w_.width(), w_.width() * w_.k(),
                                    t == 0 ? sums : tiles);
      if (t > 0) kernels_.add_to_sum(tiles, panels * tile_floats, sums);
    }
    for (int64_t p = 0; p < panels; ++p) finish(0, rows, panel + p, sums + p * tile_floats, nullptr);
  }
}

}  // namespace

int64_t PackedMatrix::bytes_for(const cpu::Context& context, int64_t n, int64_t k) {
  const int64_t width = matmul_kernels(context).width;
  return divide_up(n, width) * width * k * static_cast<int64_t>(sizeof(float));
}

void PackedMatrix::pack(const cpu::Context& context, const float* w, int64_t n, int64_t k) {
  n_ = n;
  k_ = k;
  width_ = matmul_kernels(context).width;
  const int64_t panels = divide_up(n, width_);
  if (panels * width_ * k > data_.size()) {
    data_ = Buffer<float>(panels * width_ * k);
    prefer_large_pages(data_.data(), data_.size_bytes());
  }
  context.parallel_for(panels, [&](int64_t p) {
    pack_transposed(w + p * width_ * k, k, std::min(width_, n - p * width_), k, width_,
                    data_.data() + p * width_ * k);
  });
}

void matmul_forward_cpu(const cpu::Context& context, const float* x, int64_t ldx, const PackedMatrix& w,
                        int64_t m, const MatmulEpilogue& epilogue, float* y, int64_t ldy) {
  const MatmulKernels& kernels = matmul_kernels(context);
  LOCKSTEP_CHECK(w.width() == kernels.width, "the matrix was packed for another instruction set");
  const int64_t panels = divide_up(w.n(), kernels.width);
  const ForwardProduct product(kernels, x, ldx, w, epilogue, y, ldy);
  if (m == 0) return;
  if (m <= kMaxSkinnyRows && w.k() > 0) {
    const int64_t grain = std::max(kernels.skinny_panels[m], divide_up(panels, 4 * context.threads()));
    context.parallel_ranges(panels, grain,
                            [&](int64_t begin, int64_t end) { product.run_skinny(m, begin, end); });
    return;
  }
  const BlockSizes sizes = {.steps = 256,
                            .rows = 192,
                            .panels = 1024 / kernels.width,
                            .a_floats = 48 * 1024,  // with two panels of B under a 512 KiB L2 cache
                            .panels_inside = 1};
  run_blocks(context, product, divide(m, panels, kernels.rows, context.threads(), kCostOfReadingB), sizes);
}

}  // namespace lockstep::ops
