// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_bf16_cpu.h"
#include "ops/matmul/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/check.h"
#include "numerics/fixed_point.h"
#include "numerics/tc16_tile.h"

namespace lockstep::ops {
namespace {

using numerics::kForwardChunk;
using numerics::kGradientChunk;
using numerics::Tc16ColumnGroup;
using numerics::Tc16RowElement;

constexpr int64_t kColumns = numerics::kTc16Columns;
constexpr int64_t kStep = numerics::kTc16Products;
constexpr int64_t kRows = 128;       // of x or dy whose expanded elements are held at once
constexpr int64_t kSlab = 1024;      // steps expanded at once
constexpr int64_t kGroups = 8;       // of columns expanded at once: in the nearest cache
constexpr int64_t kWeightRows = 64;  // rows of W a task of the weight gradient
constexpr int64_t kWeightPanels = 8;
static_assert(kForwardChunk % kSlab == 0 && kGradientChunk % kSlab == 0);

numerics::Tc16Tile tile_of(const cpu::Context& context) {
  numerics::Tc16Tile tile = numerics::tc16_tile_portable();
  if (context.isa() == cpu::Isa::kAvx2) tile = numerics::tc16_tile_avx2();
  if (context.isa() == cpu::Isa::kAvx512) tile = numerics::tc16_tile_avx512();
  LOCKSTEP_CHECK(tile != nullptr, "products of profile bf16 were not compiled for this instruction set");
  return tile;
}

// Rows [row, row + count) of x, steps [begin, begin + length), expanded one after another, `stride` apart.
void expand_rows(const cpu::Context& context, const Bf16* x, int64_t ldx, int64_t count, int64_t length,
                 int64_t stride, Tc16RowElement* out) {
  context.parallel_for(
      count, [&](int64_t r) { numerics::tc16_expand_row(x + r * ldx, 1, length, out + r * stride); });
}

}  // namespace

int64_t PackedMatrixBf16::bytes_for(int64_t n, int64_t k) {
  return (n + kColumns - 1) / kColumns * numerics::tc16_groups(k) * kStep * kColumns *
         static_cast<int64_t>(sizeof(Bf16));
}

void PackedMatrixBf16::pack(const cpu::Context& context, const Bf16* w, int64_t n, int64_t k) {
  n_ = n;
  k_ = k;
  groups_ = numerics::tc16_groups(k);
  const int64_t panels = (n + kColumns - 1) / kColumns;
  data_.ensure(panels * groups_ * kStep * kColumns);
  context.parallel_for(panels, [&](int64_t p) {
    numerics::tc16_pack_columns(w + p * kColumns * k, 1, k, k, std::min(kColumns, n - p * kColumns),
                                data_.data() + p * groups_ * kStep * kColumns);
  });
}

void matmul_bf16_forward_cpu(const cpu::Context& context, const Bf16* x, int64_t ldx,
                             const PackedMatrixBf16& w, int64_t m, float* y, int64_t ldy) {
  const numerics::Tc16Tile tile = tile_of(context);
  thread_local Buffer<Tc16RowElement> storage;
  Buffer<Tc16RowElement>& expanded = storage;
  expanded.ensure(kRows * kForwardChunk);
  const int64_t panels = (w.n() + kColumns - 1) / kColumns;
  for (int64_t row = 0; row < m; row += kRows) {
    const int64_t rows = std::min(kRows, m - row);
    for (int64_t begin = 0; begin < w.k(); begin += kForwardChunk) {
      const int64_t length = std::min(kForwardChunk, w.k() - begin);
      const int64_t groups = numerics::tc16_groups(length);
      expand_rows(context, x + row * ldx + begin, ldx, rows, length, groups * kStep, expanded.data());
      context.parallel_for(panels, [&](int64_t p) {
        float acc[kRows * kColumns] = {};
        Tc16ColumnGroup columns[kGroups];
        for (int64_t g = 0; g < groups; g += kGroups) {
          const int64_t count = std::min(kGroups, groups - g);
          numerics::tc16_expand_columns(w.panel(p) + (begin / kStep + g) * 256, kColumns, 1, count * kStep,
                                        kColumns, columns);
          tile(expanded.data() + g * kStep, groups * kStep, rows, columns, count, acc, kColumns);
        }
        const int64_t width = std::min(kColumns, w.n() - p * kColumns);
        for (int64_t r = 0; r < rows; ++r) {
          float* to = y + (row + r) * ldy + p * kColumns;
          const float* from = acc + r * kColumns;
          for (int64_t c = 0; c < width; ++c) to[c] = begin == 0 ? from[c] : to[c] + from[c];
        }
      });
    }
  }
}

void matmul_bf16_input_gradient_cpu(const cpu::Context& context, const Bf16* dy, int64_t lddy, const Bf16* w,
                                    int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx) {
  const numerics::Tc16Tile tile = tile_of(context);
  const int64_t panels = (k + kColumns - 1) / kColumns;
  thread_local Buffer<Tc16RowElement> storage;
  thread_local Buffer<float> chains;
  Buffer<Tc16RowElement>& expanded = storage;
  Buffer<float>& accumulators = chains;  // [panel][row][16]
  expanded.ensure(kRows * kSlab);
  accumulators.ensure(panels * kRows * kColumns);
  for (int64_t row = 0; row < m; row += kRows) {
    const int64_t rows = std::min(kRows, m - row);
    for (int64_t begin = 0; begin < n; begin += kSlab) {
      const int64_t length = std::min(kSlab, n - begin);
      const int64_t groups = numerics::tc16_groups(length);
      const bool starts = begin % kGradientChunk == 0;
      const bool ends = begin + length == n || (begin + length) % kGradientChunk == 0;
      expand_rows(context, dy + row * lddy + begin, lddy, rows, length, groups * kStep, expanded.data());
      context.parallel_for(panels, [&](int64_t p) {
        float* acc = accumulators.data() + p * kRows * kColumns;
        if (starts) std::memset(acc, 0, sizeof(float) * static_cast<size_t>(rows * kColumns));
        const int64_t width = std::min(kColumns, k - p * kColumns);
        Tc16ColumnGroup columns[kGroups];
        for (int64_t g = 0; g < groups; g += kGroups) {
          const int64_t count = std::min(kGroups, groups - g);
          numerics::tc16_expand_columns(w + (begin + g * kStep) * k + p * kColumns, k, 1,
                                        std::min(count * kStep, length - g * kStep), width, columns);
          tile(expanded.data() + g * kStep, groups * kStep, rows, columns, count, acc, kColumns);
        }
        if (!ends) return;
        for (int64_t r = 0; r < rows; ++r) {
          float* to = dx + (row + r) * lddx + p * kColumns;
          const float* from = acc + r * kColumns;
          for (int64_t c = 0; c < width; ++c) to[c] = begin < kGradientChunk ? from[c] : to[c] + from[c];
        }
      });
    }
  }
}

namespace {

// One block of W of at most kWeightRows rows and kWeightPanels * 16 columns: its chains, in the target's
// order.
class WeightBlock {
 public:
  WeightBlock(const WeightGradientTarget& target, int64_t k, int64_t row, int64_t rows, int64_t column,
              int64_t columns)
      : target_(target), k_(k), row_(row), rows_(rows), column_(column), columns_(columns) {
    load(target.begins ? nullptr : target.carry, acc_);
    load(target.rows_before > kGradientChunk ? target.chunk_sum : nullptr, sum_);
  }

  void run(numerics::Tc16Tile tile, const Bf16* dy, int64_t lddy, const Bf16* x, int64_t ldx, int64_t steps) {
    thread_local Buffer<Tc16RowElement> expanded;
    expanded.ensure(kWeightRows * kSlab);
    position_ = target_.rows_before;
    for (int64_t t = 0; t < steps;) {
      if (position_ > 0 && position_ % kGradientChunk == 0) fold();
      const int64_t length = std::min({kSlab, steps - t, kGradientChunk - position_ % kGradientChunk});
      for (int64_t r = 0; r < rows_; ++r) {
        numerics::tc16_expand_row(dy + t * lddy + row_ + r, lddy, length, expanded.data() + r * length);
      }
      Tc16ColumnGroup groups[kGroups];
      for (int64_t p = 0; p * kColumns < columns_; ++p) {
        for (int64_t s = 0; s < length; s += kGroups * kStep) {
          const int64_t here = std::min(kGroups * kStep, length - s);
          numerics::tc16_expand_columns(x + (t + s) * ldx + column_ + p * kColumns, ldx, 1, here,
                                        std::min(kColumns, columns_ - p * kColumns), groups);
          tile(expanded.data() + s, length, rows_, groups, here / kStep, acc_ + p * kWeightRows * kColumns,
               kColumns);
        }
      }
      t += length;
      position_ += length;
    }
  }

  // False: an element was out of range.
  bool finish() {
    const bool long_chain = position_ > kGradientChunk;
    if (!target_.ends) {
      store(acc_, target_.carry);
      if (long_chain) store(sum_, target_.chunk_sum);
      return true;
    }
    bool in_range = true;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) {
        const int64_t i = place(r, c);
        const float result = long_chain ? sum_[i] + acc_[i] : acc_[i];
        if (numerics::in_gradient_range(result, target_.bound)) {
          target_.image[element(r, c)] += numerics::gradient_to_fixed(result);
        } else {
          in_range = false;
        }
      }
    }
    return in_range;
  }

 private:
  static int64_t place(int64_t r, int64_t c) {
    return (c / kColumns * kWeightRows + r) * kColumns + c % kColumns;
  }
  int64_t element(int64_t r, int64_t c) const { return (row_ + r) * k_ + column_ + c; }
  void load(const float* from, float* to) const {
    std::memset(to, 0, sizeof(float) * kWeightPanels * kWeightRows * kColumns);
    if (from == nullptr) return;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) to[place(r, c)] = from[element(r, c)];
    }
  }
  void store(const float* from, float* to) const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) to[element(r, c)] = from[place(r, c)];
    }
  }
  // A whole chunk lies behind.
  void fold() {
    for (int64_t i = 0; i < kWeightPanels * kWeightRows * kColumns; ++i) {
      sum_[i] = position_ == kGradientChunk ? acc_[i] : sum_[i] + acc_[i];
      acc_[i] = 0.0F;
    }
  }

  const WeightGradientTarget& target_;
  int64_t k_, row_, rows_, column_, columns_;
  int64_t position_ = 0;
  alignas(64) float acc_[kWeightPanels * kWeightRows * kColumns];
  alignas(64) float sum_[kWeightPanels * kWeightRows * kColumns];
};

}  // namespace

bool matmul_bf16_weight_gradient_cpu(const cpu::Context& context, const Bf16* dy, int64_t lddy, const Bf16* x,
                                     int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                     const WeightGradientTarget& target) {
  LOCKSTEP_CHECK(!target.begins || target.rows_before == 0);
  LOCKSTEP_CHECK(rows % numerics::kTokenPad == 0 && target.rows_before % numerics::kTokenPad == 0);
  const numerics::Tc16Tile tile = tile_of(context);
  constexpr int64_t kBlockColumns = kWeightPanels * kColumns;
  const int64_t row_blocks = (n + kWeightRows - 1) / kWeightRows;
  const int64_t column_blocks = (k + kBlockColumns - 1) / kBlockColumns;
  std::atomic<bool> in_range{true};
  context.parallel_for(row_blocks * column_blocks, [&](int64_t task) {
    const int64_t row = task / column_blocks * kWeightRows;
    const int64_t column = task % column_blocks * kBlockColumns;
    WeightBlock block(target, k, row, std::min(kWeightRows, n - row), column,
                      std::min(kBlockColumns, k - column));
    block.run(tile, dy, lddy, x, ldx, rows);
    if (!block.finish()) in_range = false;
  });
  return in_range;
}

void matmul_bf16_epilogue_cpu(const cpu::Context& context, float* y, int64_t ldy, int64_t m, int64_t n,
                              const EpilogueBf16& epilogue, Bf16* out, int64_t ldo) {
  constexpr int64_t kGrain = 4;
  context.parallel_ranges(m, kGrain, [&](int64_t begin, int64_t end) {
    const int64_t rows = end - begin;
    float* at = y + begin * ldy;
    if (epilogue.bias != nullptr) matmul_bf16_bias_ref(epilogue.bias, rows, n, at, ldy);
    if (epilogue.rope != nullptr) {
      RopeEpilogue rope = *epilogue.rope;
      rope.positions += begin;
      matmul_bf16_rope_ref(rope, rows, at, ldy);
    }
    if (epilogue.residual != nullptr) {
      matmul_bf16_residual_ref(at, ldy, epilogue.residual + begin * epilogue.ld_residual,
                               epilogue.ld_residual, rows, n, out + begin * ldo, ldo);
    } else {
      matmul_bf16_round_ref(at, ldy, rows, n, out + begin * ldo, ldo);
    }
  });
}

void matmul_bf16_swiglu_cpu(const cpu::Context& context, const float* y, int64_t ldy, int64_t m, int64_t f,
                            Bf16* gate_up, int64_t ld_gate_up, Bf16* act, int64_t ld_act) {
  constexpr int64_t kGrain = 4;
  context.parallel_ranges(m, kGrain, [&](int64_t begin, int64_t end) {
    matmul_bf16_swiglu_ref(y + begin * ldy, ldy, end - begin, f,
                           gate_up == nullptr ? nullptr : gate_up + begin * ld_gate_up, ld_gate_up,
                           act + begin * ld_act, ld_act);
  });
}

}  // namespace lockstep::ops
