// SPDX-License-Identifier: Apache-2.0
// Dispatch and division of work. Any tiling over rows and columns gives the same bits: every element is its
// own chain.
#include <algorithm>
#include <atomic>

#include "core/check.h"
#include "numerics/constants.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_blocked.h"
#include "ops/matmul/matmul_pack.h"

namespace lockstep::ops {
namespace {

using numerics::kForwardChunk;
using numerics::kGradientChunk;

constexpr int64_t kBlockFloats = 48 * 1024;  // of A packed at a time: with B's slice, under a 512 KiB L2
constexpr int64_t kSegment = 256;            // steps between which accumulators pass through memory

const MatmulKernels& kernels_of(const cpu::Context& context) {
  const MatmulKernels* kernels = nullptr;
  if (context.isa() == cpu::Isa::kAvx512) kernels = matmul_kernels_avx512();
  if (context.isa() == cpu::Isa::kAvx2) kernels = matmul_kernels_avx2();
  return kernels == nullptr ? matmul_kernels_portable() : *kernels;
}

// Runs the tasks, each cut so that what it keeps between segments stays in the cache.
template <class Product>
void run_tasks(const cpu::Context& context, const Product& product, const std::vector<BlockRange>& tasks,
               int64_t segment_steps, const BlockSizes& sizes, int64_t rows_at_once, int64_t panels_at_once) {
  const std::vector<Segment> segments =
      cut_chain(product.position(), product.steps(), product.chunk(), segment_steps);
  context.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index) {
    const BlockRange& task = tasks[static_cast<size_t>(index)];
    const int64_t row_blocks = divide_up(task.row_end - task.row_begin, rows_at_once);
    const int64_t panel_blocks = divide_up(task.panel_end - task.panel_begin, panels_at_once);
    for (int64_t i = 0; i < row_blocks; ++i) {
      for (int64_t j = 0; j < panel_blocks; ++j) {
        const int64_t rows = task.row_end - task.row_begin;
        const int64_t panels = task.panel_end - task.panel_begin;
        const BlockRange block = {
            task.row_begin + rows * i / row_blocks, task.row_begin + rows * (i + 1) / row_blocks,
            task.panel_begin + panels * j / panel_blocks, task.panel_begin + panels * (j + 1) / panel_blocks};
        BlockRun<Product>(product, segments, sizes, block).run();
      }
    }
  });
}

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
  void pack_a(int64_t row, int64_t rows, const Segment& segment, float* out) const {
    pack_transposed(x_ + row * ldx_ + segment.begin, ldx_, rows, segment.steps, rows, out);
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

class InputGradientProduct {
 public:
  InputGradientProduct(const MatmulKernels& kernels, const float* dy, int64_t lddy, const float* w, int64_t n,
                       int64_t k, float* dx, int64_t lddx)
      : kernels_(kernels), dy_(dy), lddy_(lddy), w_(w), n_(n), k_(k), dx_(dx), lddx_(lddx) {}

  const MatmulKernels& kernels() const { return kernels_; }
  int64_t position() const { return 0; }
  int64_t steps() const { return n_; }
  int64_t chunk() const { return kGradientChunk; }
  bool starts_from_zero() const { return true; }
  bool packs_b() const { return true; }
  void pack_a(int64_t row, int64_t rows, const Segment& segment, float* out) const {
    pack_transposed(dy_ + row * lddy_ + segment.begin, lddy_, rows, segment.steps, rows, out);
  }
  const float* panels(const BlockRange& range, const Segment& segment, float* out, int64_t* stride) const {
    const int64_t column = range.panel_begin * kernels_.width;
    *stride = segment.steps * kernels_.width;
    pack_panels(w_ + segment.begin * k_ + column, k_, segment.steps,
                std::min(k_, range.panel_end * kernels_.width) - column, kernels_.width, *stride, out);
    return out;
  }
  void load(int64_t, int64_t, int64_t, float*, float*) const {}
  void will_finish(int64_t, int64_t, int64_t) const {}
  void finish(int64_t row, int64_t rows, int64_t panel, float* acc, float* sum) const {
    if (sum != nullptr) kernels_.add_to_sum(acc, rows * kernels_.width, sum);
    const int64_t column = panel * kernels_.width;
    kernels_.store(sum != nullptr ? sum : acc, rows, std::min(kernels_.width, k_ - column), nullptr, nullptr,
                   0, dx_ + row * lddx_ + column, lddx_);
  }
  // All rows of dy, at most kMaxStreamRows, and columns [begin, end) of w, which pass by once.
  void run_stream(int64_t rows, int64_t begin, int64_t end) const;

 private:
  const MatmulKernels& kernels_;
  const float* dy_;
  int64_t lddy_;
  const float* w_;
  int64_t n_;
  int64_t k_;
  float* dx_;
  int64_t lddx_;
};

void InputGradientProduct::run_stream(int64_t rows, int64_t begin, int64_t end) const {
  const int64_t columns = end - begin;
  float* acc = matmul_scratch().memory.take(rows * columns);
  for (int64_t t = 0; t < n_; t += kGradientChunk) {
    std::fill_n(acc, rows * columns, 0.0F);
    kernels_.stream[rows](std::min(kGradientChunk, n_ - t), dy_ + t, lddy_, w_ + t * k_ + begin, k_, columns,
                          acc, columns);
    for (int64_t r = 0; r < rows; ++r) {
      float* out = dx_ + r * lddx_ + begin;
      for (int64_t j = 0; j < columns; ++j)
        out[j] = t == 0 ? acc[r * columns + j] : out[j] + acc[r * columns + j];
    }
  }
}

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
  void pack_a(int64_t row, int64_t rows, const Segment& segment, float* out) const {
    pack_narrow(dy_ + segment.begin * lddy_ + row, lddy_, segment.steps, rows, out);
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
  // The image's lines, so that they come while the tile is computed.
  void will_finish(int64_t row, int64_t rows, int64_t panel) const {
    if (!target_.ends) return;
    const int64_t column = panel * kernels_.width;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t* at = target_.image + (row + r) * k_ + column;
      for (int64_t j = 0; j < std::min(kernels_.width, k_ - column); j += 8) __builtin_prefetch(at + j, 1);
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

int64_t PackedMatrix::bytes_for(const cpu::Context& context, int64_t n, int64_t k) {
  const int64_t width = kernels_of(context).width;
  return divide_up(n, width) * width * k * static_cast<int64_t>(sizeof(float));
}

void PackedMatrix::pack(const cpu::Context& context, const float* w, int64_t n, int64_t k) {
  n_ = n;
  k_ = k;
  width_ = kernels_of(context).width;
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
  const MatmulKernels& kernels = kernels_of(context);
  LOCKSTEP_CHECK(w.width() == kernels.width, "the matrix was packed for another instruction set");
  const int64_t panels = divide_up(w.n(), kernels.width);
  const ForwardProduct product(kernels, x, ldx, w, epilogue, y, ldy);
  if (m <= kMaxSkinnyRows) {
    if (m == 0) return;
    const int64_t grain = std::max(kernels.skinny_panels[m], divide_up(panels, 4 * context.threads()));
    context.parallel_ranges(panels, grain,
                            [&](int64_t begin, int64_t end) { product.run_skinny(m, begin, end); });
    return;
  }
  const BlockSizes sizes = {kBlockFloats, false};
  run_tasks(context, product, divide(m, panels, kernels.rows, context.threads(), 0.1), kSegment, sizes, 192,
            64);
}

void matmul_input_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* w,
                               int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx) {
  const MatmulKernels& kernels = kernels_of(context);
  const InputGradientProduct product(kernels, dy, lddy, w, n, k, dx, lddx);
  if (m == 0) return;
  if (m <= kMaxStreamRows) {
    context.parallel_ranges(k, std::max<int64_t>(64, divide_up(k, context.threads())),
                            [&](int64_t begin, int64_t end) { product.run_stream(m, begin, end); });
    return;
  }
  const int64_t panels = divide_up(k, kernels.width);
  const BlockSizes sizes = {kBlockFloats, false};
  run_tasks(context, product, divide(m, panels, kernels.rows, context.threads(), 0.4),
            m <= 64 ? 64 : kSegment, sizes, 1024, 64);
}

bool matmul_weight_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* x,
                                int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                const WeightGradientTarget& target) {
  LOCKSTEP_CHECK(!target.begins || target.rows_before == 0);
  const MatmulKernels& kernels = kernels_of(context);
  std::atomic<bool> in_range{true};
  const WeightGradientProduct product(kernels, dy, lddy, x, ldx, rows, k, target, &in_range);
  const int64_t panels = divide_up(k, kernels.width);
  const BlockSizes sizes = {kBlockFloats, rows <= 64};
  run_tasks(context, product, divide(n, panels, kernels.rows, context.threads(), 0.4), kSegment, sizes, 768,
            64);
  return in_range.load();
}

}  // namespace lockstep::ops
