// SPDX-License-Identifier: Apache-2.0
#include "model/gradient.h"

#include <algorithm>
#include <cstring>

#include "numerics/fixed_point.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/embedding_bf16_cpu.h"
#include "ops/matmul/matmul_bf16_cpu.h"
#include "ops/vector_gradient/vector_gradient_bf16_cpu.h"

namespace lockstep::model {
namespace {

using numerics::Bf16;

constexpr int64_t kBandBytes = int64_t{12} << 20;  // of the image; half of a usual last-level cache
constexpr int64_t kBandRows = 96;
constexpr int64_t kPiecesLeaf = int64_t{1}
                                << 40;  // sorts after every leaf: an error of a vector or an embedding row

}  // namespace

GradientImage::GradientImage(const ParameterTable& table) : table_(table), image_(table.arena_size()) {}

void GradientImage::begin(const cpu::Context& context, int64_t leaves, int64_t tokens) {
  constexpr int64_t kGrain = int64_t{1} << 20;
  context.parallel_ranges(image_.size(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(image_.data() + begin, 0, static_cast<size_t>(end - begin) * sizeof(int64_t));
  });
  leaf_bound_ = numerics::gradient_bound(leaves);
  piece_bound_ = numerics::gradient_bound(std::max<int64_t>(tokens, 1));
  failed_leaf_ = -1;
  failed_offset_ = -1;
}

void GradientImage::fail(int64_t offset, int64_t leaf) {
  // The first leaf, then the first tensor by name, whatever the order of the calls.
  const bool first = failed_leaf_ < 0 || leaf < failed_leaf_ ||
                     (leaf == failed_leaf_ && table_.at(offset).name < table_.at(failed_offset_).name);
  if (first) {
    failed_leaf_ = leaf;
    failed_offset_ = offset;
  }
}

void GradientImage::prepare_carry(const std::vector<LeafRows>& leaves) {
  for (const LeafRows& leaf : leaves) {
    if (leaf.begins && leaf.ends) continue;
    if (carry_.empty()) carry_ = Buffer<float>(table_.arena_size());
    if (leaf.rows_before + leaf.end - leaf.begin > numerics::kGradientChunk && chunk_sum_.empty()) {
      chunk_sum_ = Buffer<float>(table_.arena_size());
    }
  }
}

template <class Element, class Product>
void GradientImage::add_bands(int64_t offset, const Element* dy, int64_t lddy, const Element* x, int64_t ldx,
                              int64_t n, int64_t k, const std::vector<LeafRows>& leaves,
                              const Product& product) {
  prepare_carry(leaves);
  // Bands of rows of W, all leaves of the micro-batch in each: the band's integers stay in the cache between
  // leaves.
  const int64_t band =
      leaves.size() < 2
          ? n
          : std::max<int64_t>(kBandRows, kBandBytes / (k * static_cast<int64_t>(sizeof(int64_t))));
  for (int64_t row = 0; row < n; row += band) {
    const int64_t at = offset + row * k;
    for (const LeafRows& leaf : leaves) {
      const int64_t rows = leaf.end - leaf.begin;
      const bool whole = leaf.begins && leaf.ends;
      ops::WeightGradientTarget target;
      target.begins = leaf.begins;
      target.ends = leaf.ends;
      target.rows_before = leaf.rows_before;
      target.carry = whole ? nullptr : carry_.data() + at;
      target.chunk_sum = chunk_sum_.empty() ? nullptr : chunk_sum_.data() + at;
      target.image = image_.data() + at;
      target.bound = leaf_bound_;
      if (!product(dy + leaf.begin * lddy + row, x + leaf.begin * ldx, rows, std::min(band, n - row), target))
        fail(at, leaf.leaf);
    }
  }
}

void GradientImage::add_matrix(const cpu::Context& context, int64_t offset, const float* dy, int64_t lddy,
                               const float* x, int64_t ldx, int64_t n, int64_t k,
                               const std::vector<LeafRows>& leaves) {
  add_bands(offset, dy, lddy, x, ldx, n, k, leaves,
            [&](const float* a, const float* b, int64_t rows, int64_t band,
                const ops::WeightGradientTarget& target) {
              return ops::matmul_weight_gradient_cpu(context, a, lddy, b, ldx, rows, band, k, target);
            });
}

void GradientImage::add_matrix(const cpu::Context& context, int64_t offset, const Bf16* dy, int64_t lddy,
                               const Bf16* x, int64_t ldx, int64_t n, int64_t k,
                               const std::vector<LeafRows>& leaves) {
  add_bands(
      offset, dy, lddy, x, ldx, n, k, leaves,
      [&](const Bf16* a, const Bf16* b, int64_t rows, int64_t band, const ops::WeightGradientTarget& target) {
        return ops::matmul_bf16_weight_gradient_cpu(context, a, lddy, b, ldx, rows, band, k, target);
      });
}

void GradientImage::add_gain(const cpu::Context& context, int64_t offset, const Bf16* dy, const Bf16* x,
                             const float* inverse_rms, int64_t h,
                             const std::vector<ops::SampleRows>& samples) {
  if (!ops::gain_gradient_bf16_cpu(context, dy, x, inverse_rms, h, samples.data(),
                                   static_cast<int64_t>(samples.size()), piece_bound_,
                                   image_.data() + offset)) {
    fail(offset, kPiecesLeaf);
  }
}

void GradientImage::add_bias(const cpu::Context& context, int64_t offset, const Bf16* dy, int64_t lddy,
                             int64_t n, const std::vector<ops::SampleRows>& samples) {
  if (!ops::bias_gradient_bf16_cpu(context, dy, lddy, n, samples.data(), static_cast<int64_t>(samples.size()),
                                   piece_bound_, image_.data() + offset)) {
    fail(offset, kPiecesLeaf);
  }
}

void GradientImage::add_embedding(const cpu::Context& context, int64_t offset, const Bf16* dh,
                                  const int32_t* ids, int64_t rows, int64_t h) {
  if (!ops::embedding_gradient_bf16_cpu(context, dh, ids, rows, h, piece_bound_, image_.data() + offset)) {
    fail(offset, kPiecesLeaf);
  }
}

void GradientImage::add_gain(const cpu::Context& context, int64_t offset, const float* dy, const float* x,
                             const float* inverse_rms, int64_t h,
                             const std::vector<ops::SampleRows>& samples) {
  if (!ops::gain_gradient_cpu(context, dy, x, inverse_rms, h, samples.data(),
                              static_cast<int64_t>(samples.size()), piece_bound_, image_.data() + offset)) {
    fail(offset, kPiecesLeaf);
  }
}

void GradientImage::add_bias(const cpu::Context& context, int64_t offset, const float* dy, int64_t lddy,
                             int64_t n, const std::vector<ops::SampleRows>& samples) {
  if (!ops::bias_gradient_cpu(context, dy, lddy, n, samples.data(), static_cast<int64_t>(samples.size()),
                              piece_bound_, image_.data() + offset)) {
    fail(offset, kPiecesLeaf);
  }
}

void GradientImage::add_embedding(const cpu::Context& context, int64_t offset, const float* dh,
                                  const int32_t* ids, int64_t rows, int64_t h) {
  if (!ops::embedding_gradient_cpu(context, dh, ids, rows, h, piece_bound_, image_.data() + offset)) {
    fail(offset, kPiecesLeaf);
  }
}

Status GradientImage::status() const {
  if (failed_leaf_ < 0) return ok_status();
  const std::string where =
      failed_leaf_ == kPiecesLeaf ? "a token's part" : "leaf " + std::to_string(failed_leaf_);
  return stopped(
      "gradient of {} ({}) is NaN, infinite or too large; lower the learning rate or check the data",
      table_.at(failed_offset_).name, where);
}

}  // namespace lockstep::model
