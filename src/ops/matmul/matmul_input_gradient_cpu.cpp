// SPDX-License-Identifier: Apache-2.0
// The gradient of the input. W [n, k] is row-major, its rows are the steps. One row of dy: a step adds a row
// of W to all sums. Few rows: W is read where it lies, a few of its rows side by side, as packing it would
// cost as much as the product. More rows: blocks.
#include <algorithm>

#include "numerics/constants.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_blocked.h"
#include "ops/matmul/matmul_pack.h"

namespace lockstep::ops {
namespace {

using numerics::kGradientChunk;

constexpr double kCostOfPackingB = 0.4;  // see divide()
constexpr int64_t kMaxDirectRows = 48;
constexpr int64_t kDirectSteps = 16;          // rows of W side by side: more would share too few cache sets
constexpr int64_t kDirectAhead = 4;           // panels between asking for memory and reading it
constexpr int64_t kDirectBlock = 256;         // steps of dy packed at a time
constexpr int64_t kDirectFloats = 48 * 1024;  // of accumulators, which pass through the cache every 16 steps

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
  void pack_a(const Segment& segment, const int64_t* begins, int64_t tiles, float* out) const {
    pack_rows(dy_ + segment.begin, lddy_, segment.steps, begins, tiles, out);
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
  // The same for all rows, at most kMaxDirectRows, and panels [begin, end) of w, which are read once, where
  // they lie.
  void run_direct(int64_t rows, int64_t begin, int64_t end) const;
  // The same for one row and columns [begin, end).
  void run_stream(int64_t begin, int64_t end) const;

 private:
  // Rows [begins[i], begins[i + 1]) of dy are a tile; the accumulators of panel p lie at p * rows * width.
  struct DirectTiles {
    int64_t count;
    int64_t begins[kMaxDirectRows + 1];
    float* acc;
    float* edge;  // [kDirectSteps][width]
  };
  // Asks for the rows of the panel that comes kDirectAhead later, after the last one in the next steps.
  void ask_ahead(int64_t begin, int64_t end, int64_t panel, int64_t t) const;
  // `steps` steps from t on, dy packed in `a`, of which each tile has `a_steps` and `a_begin` are done.
  void direct_steps(const DirectTiles& tiles, int64_t begin, int64_t end, int64_t t, int64_t steps,
                    const float* a, int64_t a_steps, int64_t a_begin) const;

  const MatmulKernels& kernels_;
  const float* dy_;
  int64_t lddy_;
  const float* w_;
  int64_t n_;
  int64_t k_;
  float* dx_;
  int64_t lddx_;
};

void InputGradientProduct::ask_ahead(int64_t begin, int64_t end, int64_t panel, int64_t t) const {
  int64_t wanted = panel + kDirectAhead;
  if (wanted >= end) {
    wanted -= end - begin;
    t += kDirectSteps;
  }
  const int64_t rows = std::min(kDirectSteps, n_ - t);
  const float* at = w_ + t * k_ + wanted * kernels_.width;
  for (int64_t i = 0; i < rows; ++i, at += k_) {
    for (int64_t line = 0; line < kernels_.width; line += 16) prefetch_line(at + line);
  }
}

void InputGradientProduct::direct_steps(const DirectTiles& tiles, int64_t begin, int64_t end, int64_t t,
                                        int64_t steps, const float* a, int64_t a_steps,
                                        int64_t a_begin) const {
  const int64_t width = kernels_.width;
  const int64_t rows = tiles.begins[tiles.count];
  for (int64_t panel = begin; panel < end; ++panel) {
    const float* b = w_ + t * k_ + panel * width;
    ask_ahead(begin, end, panel, t);
    int64_t ldb = k_;
    if ((panel + 1) * width > k_) {  // the last columns of w, widened with zeros
      pack_panels(b, k_, steps, k_ - panel * width, width, 0, tiles.edge);
      b = tiles.edge;
      ldb = width;
    }
    float* acc = tiles.acc + (panel - begin) * rows * width;
    for (int64_t tile = 0; tile < tiles.count; ++tile) {
      const int64_t row = tiles.begins[tile];
      const int64_t height = tiles.begins[tile + 1] - row;
      kernels_.direct[height](steps, a + row * a_steps + a_begin * height, b, ldb, acc + row * width);
    }
  }
}

void InputGradientProduct::run_direct(int64_t rows, int64_t begin, int64_t end) const {
  const int64_t width = kernels_.width;
  const int64_t kept = (end - begin) * rows * width;
  DirectTiles tiles{.count = divide_up(rows, kernels_.rows), .begins = {}, .acc = nullptr, .edge = nullptr};
  for (int64_t tile = 0; tile <= tiles.count; ++tile) tiles.begins[tile] = rows * tile / tiles.count;
  float* fresh = matmul_scratch().memory.take(2 * kept + (rows * kDirectBlock + kDirectSteps * width));
  float* sum = fresh + kept;
  tiles.edge = sum + kept;
  float* a = tiles.edge + kDirectSteps * width;
  for (int64_t chunk = 0; chunk < n_; chunk += kGradientChunk) {
    const int64_t chunk_end = std::min(n_, chunk + kGradientChunk);
    tiles.acc = chunk == 0 ? sum : fresh;  // the first chunk's chains are the sum's start
    std::fill_n(tiles.acc, kept, 0.0F);
    for (int64_t t = chunk; t < chunk_end; t += kDirectBlock) {
      const int64_t block = std::min(kDirectBlock, chunk_end - t);
      pack_rows(dy_ + t, lddy_, block, tiles.begins, tiles.count, a);
      for (int64_t i = 0; i < block; i += kDirectSteps)
        direct_steps(tiles, begin, end, t + i, std::min(kDirectSteps, block - i), a, block, i);
    }
    if (chunk > 0) kernels_.add_to_sum(tiles.acc, kept, sum);
  }
  if (n_ == 0) std::fill_n(sum, kept, 0.0F);
  for (int64_t panel = begin; panel < end; ++panel)
    finish(0, rows, panel, sum + (panel - begin) * rows * width, nullptr);
}

void InputGradientProduct::run_stream(int64_t begin, int64_t end) const {
  const int64_t columns = end - begin;
  float* chunk_sum = matmul_scratch().memory.take(columns);
  float* out = dx_ + begin;
  std::fill_n(out, columns, 0.0F);
  for (int64_t chunk = 0; chunk < n_; chunk += kGradientChunk) {
    const int64_t steps = std::min(n_ - chunk, kGradientChunk);
    float* acc = chunk == 0 ? out : chunk_sum;  // the first chunk's chains are the sum's start
    if (chunk > 0) std::fill_n(acc, columns, 0.0F);
    kernels_.stream(steps, dy_ + chunk, w_ + chunk * k_ + begin, k_, columns, acc);
    if (chunk == 0) continue;
    for (int64_t j = 0; j < columns; ++j) out[j] = out[j] + chunk_sum[j];
  }
}

}  // namespace

void matmul_input_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* w,
                               int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx) {
  const MatmulKernels& kernels = matmul_kernels(context);
  const InputGradientProduct product(kernels, dy, lddy, w, n, k, dx, lddx);
  if (m == 0) return;
  const int64_t panels = divide_up(k, kernels.width);
  if (m == 1) {
    context.parallel_ranges(panels, divide_up(panels, context.threads()), [&](int64_t begin, int64_t end) {
      product.run_stream(begin * kernels.width, std::min(k, end * kernels.width));
    });
    return;
  }
  if (m <= kMaxDirectRows) {
    context.parallel_ranges(panels, divide_up(panels, context.threads()), [&](int64_t begin, int64_t end) {
      const int64_t blocks = divide_up((end - begin) * kernels.width * m, kDirectFloats);
      for (int64_t i = 0; i < blocks; ++i)
        product.run_direct(m, begin + (end - begin) * i / blocks, begin + (end - begin) * (i + 1) / blocks);
    });
    return;
  }
  const BlockSizes sizes = {.steps = 256,
                            .rows = 1024,
                            .panels = 1024 / kernels.width,
                            .a_floats = 48 * 1024,
                            .panels_inside = 128 / kernels.width};  // half of an L2 cache of 512 KiB each
  run_blocks(context, product, divide(m, panels, kernels.rows, context.threads(), kCostOfPackingB), sizes);
}

}  // namespace lockstep::ops
