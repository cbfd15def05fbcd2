// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/cpu_gradient.h"

#include <algorithm>
#include <cstring>

#include "model/cpu/cpu_ops.h"
#include "numerics/constants.h"
#include "numerics/fixed_point.h"

namespace lockstep::model {
namespace {

constexpr int64_t kBandBytes = int64_t{12} << 20;  // of the image; half of a usual last-level cache
constexpr int64_t kBandRows = 96;
constexpr int64_t kPiecesLeaf = int64_t{1}
                                << 40;  // sorts after every leaf: an error of a vector or an embedding row

}  // namespace

CpuGradient::CpuGradient(const ParameterTable& table) : table_(table), image_(table.arena_size()) {}

void CpuGradient::begin(const cpu::Context& context, int64_t leaves, int64_t tokens) {
  constexpr int64_t kGrain = int64_t{1} << 20;
  context.parallel_ranges(image_.size(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(image_.data() + begin, 0, static_cast<size_t>(end - begin) * sizeof(int64_t));
  });
  leaf_bound_ = numerics::gradient_bound(leaves);
  piece_bound_ = numerics::gradient_bound(std::max<int64_t>(tokens, 1));
  failed_leaf_ = -1;
  failed_offset_ = -1;
}

void CpuGradient::fail(int64_t offset, int64_t leaf) {
  // The first leaf, then the first tensor by name, whatever the order of the calls.
  const bool first = failed_leaf_ < 0 || leaf < failed_leaf_ ||
                     (leaf == failed_leaf_ && table_.at(offset).name < table_.at(failed_offset_).name);
  if (first) {
    failed_leaf_ = leaf;
    failed_offset_ = offset;
  }
}

void CpuGradient::prepare_carry(const std::vector<LeafRows>& leaves) {
  for (const LeafRows& leaf : leaves) {
    if (leaf.begins && leaf.ends) continue;
    if (carry_.empty()) carry_ = Buffer<float>(table_.arena_size());
    if (leaf.rows_before + leaf.end - leaf.begin > numerics::kGradientChunk && chunk_sum_.empty()) {
      chunk_sum_ = Buffer<float>(table_.arena_size());
    }
  }
}

template <class E>
void CpuGradient::add_matrix(const cpu::Context& context, int64_t offset, const E* dy, int64_t lddy,
                             const E* x, int64_t ldx, int64_t n, int64_t k,
                             const std::vector<LeafRows>& leaves) {
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
      if (!CpuOps<E>::weight_gradient(context, dy + leaf.begin * lddy + row, lddy, x + leaf.begin * ldx, ldx,
                                      rows, std::min(band, n - row), k, target))
        fail(at, leaf.leaf);
    }
  }
}

template <class E>
void CpuGradient::add_gain(const cpu::Context& context, int64_t offset, const E* dy, const E* x,
                           const float* inverse_rms, int64_t h, const std::vector<ops::SampleRows>& samples) {
  if (!CpuOps<E>::gain_gradient(context, dy, x, inverse_rms, h, samples.data(),
                                static_cast<int64_t>(samples.size()), piece_bound_, image_.data() + offset))
    fail(offset, kPiecesLeaf);
}

template <class E>
void CpuGradient::add_bias(const cpu::Context& context, int64_t offset, const E* dy, int64_t lddy, int64_t n,
                           const std::vector<ops::SampleRows>& samples) {
  if (!CpuOps<E>::bias_gradient(context, dy, lddy, n, samples.data(), static_cast<int64_t>(samples.size()),
                                piece_bound_, image_.data() + offset))
    fail(offset, kPiecesLeaf);
}

template <class E>
void CpuGradient::add_embedding(const cpu::Context& context, int64_t offset, const E* dh, const int32_t* ids,
                                int64_t rows, int64_t h) {
  if (!CpuOps<E>::embedding_gradient(context, dh, ids, rows, h, piece_bound_, image_.data() + offset))
    fail(offset, kPiecesLeaf);
}

Status CpuGradient::status() const {
  if (failed_leaf_ < 0) return ok_status();
  const std::string where =
      failed_leaf_ == kPiecesLeaf ? "a token's part" : "leaf " + std::to_string(failed_leaf_);
  return stopped(
      "gradient of {} ({}) is NaN, infinite or too large; lower the learning rate or check the data",
      table_.at(failed_offset_).name, where);
}

#define LOCKSTEP_INSTANTIATE(E)                                                                             \
  template void CpuGradient::add_matrix(const cpu::Context&, int64_t, const E*, int64_t, const E*, int64_t, \
                                        int64_t, int64_t, const std::vector<LeafRows>&);                    \
  template void CpuGradient::add_gain(const cpu::Context&, int64_t, const E*, const E*, const float*,       \
                                      int64_t, const std::vector<ops::SampleRows>&);                        \
  template void CpuGradient::add_bias(const cpu::Context&, int64_t, const E*, int64_t, int64_t,             \
                                      const std::vector<ops::SampleRows>&);                                 \
  template void CpuGradient::add_embedding(const cpu::Context&, int64_t, const E*, const int32_t*, int64_t, \
                                           int64_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::model
