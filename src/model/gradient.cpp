// SPDX-License-Identifier: Apache-2.0
#include "model/gradient.h"

#include <algorithm>
#include <cstring>

#include "numerics/fixed_point.h"
#include "ops/embedding/embedding.h"

namespace lockstep::model {
namespace {

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

void GradientImage::add_matrix(const cpu::Context& context, int64_t offset, const float* dy, int64_t lddy,
                               const float* x, int64_t ldx, int64_t n, int64_t k,
                               const std::vector<LeafRows>& leaves) {
  for (const LeafRows& leaf : leaves) {
    const int64_t rows = leaf.end - leaf.begin;
    if (rows == 0 && !leaf.ends) continue;
    const bool whole = leaf.begins && leaf.ends;
    if (!whole && carry_.empty()) carry_ = Buffer<float>(table_.arena_size());
    if (!whole && leaf.rows_before + rows > numerics::kGradientChunk && chunk_sum_.empty()) {
      chunk_sum_ = Buffer<float>(table_.arena_size());
    }
    ops::WeightGradientTarget target;
    target.begins = leaf.begins;
    target.ends = leaf.ends;
    target.rows_before = leaf.rows_before;
    target.carry = whole ? nullptr : carry_.data() + offset;
    target.chunk_sum = chunk_sum_.empty() ? nullptr : chunk_sum_.data() + offset;
    target.image = image_.data() + offset;
    target.bound = leaf_bound_;
    if (!ops::matmul_weight_gradient_cpu(context, dy + leaf.begin * lddy, lddy, x + leaf.begin * ldx, ldx,
                                         rows, n, k, target)) {
      fail(offset, leaf.leaf);
    }
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
