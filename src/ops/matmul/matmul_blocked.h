// SPDX-License-Identifier: Apache-2.0
// The blocked product that all three products share: C[rows, columns] = chains over steps, B in panels, A
// packed a block at a time. Tiling and the places where a chain is cut and goes on from memory change no bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/cpu/context.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/matmul/matmul_memory.h"

namespace lockstep::ops {

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A piece of the chains: steps [begin, begin + steps) of this call. `folds`: a whole chunk lies right before
// it and is added to the sum first; the piece then starts from +0.
struct Segment {
  int64_t begin;
  int64_t steps;
  bool folds;
};

// Cuts `steps` steps, of which `position` came before, at multiples of `chunk` and evenly into pieces of at
// most `longest`.
std::vector<Segment> cut_chain(int64_t position, int64_t steps, int64_t chunk, int64_t longest);

// Rows and columns (in panels) that one task computes.
struct BlockRange {
  int64_t row_begin, row_end;
  int64_t panel_begin, panel_end;
};

// Divides [0, rows) x [0, panels) into tasks for `threads`: the cheapest grid where packing a step of A costs
// about 1/16 of a tile a row, and one of B b_cost tiles a panel.
std::vector<BlockRange> divide(int64_t rows, int64_t panels, int64_t tile_rows, int threads, double b_cost);

// Per-thread memory, kept between calls.
struct MatmulScratch {
  ScratchMemory memory;
  std::vector<int64_t> tile_begin;
};
MatmulScratch& matmul_scratch();

struct BlockSizes {
  int64_t steps;          // of a segment at most
  int64_t rows;           // of a block at most; with panels: what is kept between segments
  int64_t panels;         // of a block at most
  int64_t a_floats;       // of A packed at a time
  int64_t panels_inside;  // walked along before the next tile of rows: 1 keeps a panel in the L1 cache, more
                          // keep a tile of A there and so many panels in the L2 cache
};

// The kernels of the context's instruction set.
const MatmulKernels& matmul_kernels(const cpu::Context& context);

// Product: kernels(), position(), steps(), chunk(), starts_from_zero(); pack_a(segment, begins, tiles, out):
// rows [begins[i], begins[i + 1]) as [steps][rows] one after another; packs_b(); panels(range, segment, out,
// &stride) returns panel range.panel_begin of the segment (in `out` when it packs); load(row, rows,
// panel, acc, sum or null); finish(row, rows, panel, acc, sum or null) (may change both); will_finish(row,
// rows, panel): memory that finish() is going to need.
template <class Product>
class BlockRun {
 public:
  BlockRun(const Product& product, const std::vector<Segment>& segments, const BlockSizes& sizes,
           const BlockRange& range)
      : product_(product),
        kernels_(product.kernels()),
        segments_(segments),
        sizes_(sizes),
        range_(range),
        rows_(range.row_end - range.row_begin),
        tiles_((rows_ + kernels_.rows - 1) / kernels_.rows),
        tile_floats_(kernels_.rows * kernels_.width),
        keeps_(segments.size() != 1 || !product.starts_from_zero()),
        sums_(product.position() + product.steps() > product.chunk()),
        scratch_(matmul_scratch()) {
    scratch_.tile_begin.resize(static_cast<size_t>(tiles_ + 1));
    for (int64_t tile = 0; tile <= tiles_; ++tile)
      scratch_.tile_begin[static_cast<size_t>(tile)] = range.row_begin + rows_ * tile / tiles_;
    tile_begin_ = scratch_.tile_begin.data();
  }

  void run() {
    int64_t longest = 0;
    for (const Segment& segment : segments_) longest = std::max(longest, segment.steps);
    const int64_t panels = range_.panel_end - range_.panel_begin;
    const int64_t kept = tiles_ * panels * tile_floats_;
    const int64_t tile_rows_floats = kernels_.rows * longest;
    const int64_t group =
        std::max(sizes_.a_floats, tile_rows_floats) + 2 * tile_rows_floats;  // tiles are whole
    const int64_t a = divide_up(std::min(rows_ * longest, group), 16) * 16;
    const int64_t b = product_.packs_b() ? panels * kernels_.width * longest : 0;
    a_ = scratch_.memory.take(a + b + (keeps_ ? kept : 0) + (sums_ ? kept : 0));
    b_ = a_ + a;
    acc_ = b_ + b;
    sum_ = acc_ + (keeps_ ? kept : 0);
    if (!product_.starts_from_zero()) load_all();
    if (segments_.empty()) finish_all();
    for (const Segment& segment : segments_) run_segment(segment);
  }

 private:
  int64_t tile_begin(int64_t tile) const { return tile_begin_[tile]; }
  int64_t tile_rows(int64_t tile) const { return tile_begin(tile + 1) - tile_begin(tile); }
  // Tiles lie in the order in which a segment visits them.
  float* kept(float* begin, int64_t tile, int64_t panel) const {
    const int64_t index = panel - range_.panel_begin;
    const int64_t inside = index % sizes_.panels_inside;
    const int64_t first = index - inside;
    const int64_t count = std::min(sizes_.panels_inside, range_.panel_end - range_.panel_begin - first);
    return begin + (first * tiles_ + tile * count + inside) * tile_floats_;
  }
  float* sum_of(int64_t tile, int64_t panel) const { return sums_ ? kept(sum_, tile, panel) : nullptr; }

  void load_all() {
    for (int64_t panel = range_.panel_begin; panel < range_.panel_end; ++panel) {
      for (int64_t tile = 0; tile < tiles_; ++tile)
        product_.load(tile_begin(tile), tile_rows(tile), panel, kept(acc_, tile, panel), sum_of(tile, panel));
    }
  }

  // No steps: the results are what was carried, or +0.
  void finish_all() {
    for (int64_t panel = range_.panel_begin; panel < range_.panel_end; ++panel) {
      for (int64_t tile = 0; tile < tiles_; ++tile) {
        float* acc = kept(acc_, tile, panel);
        if (product_.starts_from_zero()) std::fill_n(acc, tile_floats_, 0.0F);
        product_.finish(tile_begin(tile), tile_rows(tile), panel, acc, sum_of(tile, panel));
      }
    }
  }

  int64_t rows_at_once(int64_t steps) const {
    return std::max(kernels_.rows, sizes_.a_floats / std::max<int64_t>(1, steps));
  }

  void run_segment(const Segment& segment) {
    int64_t stride = 0;
    const float* panels = product_.panels(range_, segment, b_, &stride);
    const int64_t groups = std::max<int64_t>(1, divide_up(rows_, rows_at_once(segment.steps)));
    for (int64_t group = 0; group < groups; ++group)
      run_group(segment, panels, stride, tiles_ * group / groups, tiles_ * (group + 1) / groups);
  }

  void run_group(const Segment& segment, const float* panels, int64_t stride, int64_t tile_first,
                 int64_t tile_last) {
    product_.pack_a(segment, tile_begin_ + tile_first, tile_last - tile_first, a_);
    const int64_t tiles = tile_last - tile_first;
    // The panels of the next turn are asked for evenly over the tiles of this one.
    const int64_t lines = divide_up(kernels_.width, tiles);
    const int64_t lines_a_tile = segment.steps / 16 * lines;
    for (int64_t first = range_.panel_begin; first < range_.panel_end; first += sizes_.panels_inside) {
      const int64_t last = std::min(first + sizes_.panels_inside, range_.panel_end);
      const float* b = panels + (first - range_.panel_begin) * stride;
      const char* next = reinterpret_cast<const char*>(b + (last - first) * stride);
      int64_t want = last < range_.panel_end ? segment.steps * kernels_.width / 16 * (last - first) : 0;
      for (int64_t tile = tile_first; tile < tile_last; ++tile) {
        const float* a = a_ + (tile_begin(tile) - tile_begin(tile_first)) * segment.steps;
        for (int64_t panel = first; panel < last; ++panel) {
          run_tile(segment, a, b + (panel - first) * stride, tile, panel, next, want > 0 ? lines : 0);
          next += lines_a_tile * 64;
          want -= lines_a_tile;
        }
      }
    }
  }

  void run_tile(const Segment& segment, const float* a, const float* b, int64_t tile, int64_t panel,
                const char* next, int64_t lines) {
    alignas(64) float local[kMaxTileRows * kMaxTileWidth];
    const int64_t rows = tile_rows(tile);
    float* acc = keeps_ ? kept(acc_, tile, panel) : local;
    float* sum = sum_of(tile, panel);
    if (segment.folds) {
      if (product_.position() + segment.begin == product_.chunk()) {
        std::copy_n(acc, rows * kernels_.width, sum);
      } else {
        kernels_.add_to_sum(acc, rows * kernels_.width, sum);
      }
    }
    const bool fresh = segment.folds || (segment.begin == 0 && product_.starts_from_zero());
    const bool last = segment.begin + segment.steps == product_.steps();
    if (last) product_.will_finish(tile_begin(tile), rows, panel);
    kernels_.tile[rows](segment.steps, a, b, fresh ? nullptr : acc, last ? local : acc, next, lines);
    if (last) product_.finish(tile_begin(tile), rows, panel, local, sum);
  }

  const Product& product_;
  const MatmulKernels& kernels_;
  const std::vector<Segment>& segments_;
  const BlockSizes& sizes_;
  const BlockRange range_;
  const int64_t rows_;
  const int64_t tiles_;
  const int64_t tile_floats_;
  const bool keeps_;
  const bool sums_;
  MatmulScratch& scratch_;
  float* a_ = nullptr;
  float* b_ = nullptr;
  float* acc_ = nullptr;
  float* sum_ = nullptr;
  const int64_t* tile_begin_ = nullptr;  // even heights; a table, for a division costs as much as a step
};

// Runs the product's tasks on the context's threads, each in blocks of `sizes`.
template <class Product>
void run_blocks(const cpu::Context& context, const Product& product, const std::vector<BlockRange>& tasks,
                const BlockSizes& sizes) {
  const std::vector<Segment> segments =
      cut_chain(product.position(), product.steps(), product.chunk(), sizes.steps);
  context.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index) {
    const BlockRange& task = tasks[static_cast<size_t>(index)];
    const int64_t rows = task.row_end - task.row_begin;
    const int64_t panels = task.panel_end - task.panel_begin;
    const int64_t across = divide_up(rows, sizes.rows);
    const int64_t along = divide_up(panels, sizes.panels);
    for (int64_t i = 0; i < across; ++i) {
      for (int64_t j = 0; j < along; ++j) {
        const BlockRange block = {
            task.row_begin + rows * i / across, task.row_begin + rows * (i + 1) / across,
            task.panel_begin + panels * j / along, task.panel_begin + panels * (j + 1) / along};
        BlockRun<Product>(product, segments, sizes, block).run();
      }
    }
  });
}

}  // namespace lockstep::ops
