// SPDX-License-Identifier: Apache-2.0
// The gradient image of one update on the GPU (gradient.h): the same integers, whatever the cut.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cuda/memory.h"
#include "device/cuda/staging.h"
#include "model/cuda/tensor_ops.h"
#include "model/leaf_rows.h"
#include "model/parameters.h"
#include "numerics/fixed_point.h"

namespace lockstep::model {

// Leaves of a micro-batch's rows on the device, in the form of each profile.
struct DeviceLeaves {
  const ops::WeightGradientLeaf* bf16 = nullptr;
  const ops::WeightGradientRows* fp32 = nullptr;
  int64_t count = 0;
  bool continues = false;  // the first leaf began earlier
  bool waits = false;      // the last goes on later
  bool long_leaf = false;  // a cut leaf has more rows than a chunk
};

class CudaGradient {
 public:
  // Key of a fault: the leaf, then the first parameter by name; parts of tokens come after all leaves.
  static constexpr int kLeafShift = 17;  // 4,096 layers of 12 parameters; leaves up to 4,096 fit an int32
  static constexpr unsigned long long kPieces = 1ULL << 60;

  CudaGradient(const cuda::Context& device, const ParameterTable& table)
      : device_(device), table_(table), image_(table.arena_size(), "the gradient"), fault_(1) {}

  void begin(int64_t leaves, int64_t tokens) {
    image_.zero(device_);
    cuda::fill(device_, fault_.data(), 0xFF, fault_.size_bytes());
    leaf_bound_ = numerics::gradient_bound(leaves);
    piece_bound_ = numerics::gradient_bound(std::max<int64_t>(tokens, 1));
  }

  // Adds the leaves to `staging` and gives a function that finds them after it was sent.
  template <class Staging>
  static std::pair<int64_t, int64_t> stage(const std::vector<LeafRows>& leaves, Staging* staging) {
    std::vector<ops::WeightGradientLeaf> bf16;
    std::vector<ops::WeightGradientRows> fp32;
    for (const LeafRows& leaf : leaves) {
      bf16.push_back({static_cast<int32_t>(leaf.begin), static_cast<int32_t>(leaf.end),
                      static_cast<int32_t>(leaf.rows_before), leaf.begins ? 1 : 0, leaf.ends ? 1 : 0,
                      static_cast<int32_t>(leaf.leaf) << kLeafShift});
      fp32.push_back(
          {leaf.begin, leaf.end, leaf.rows_before, leaf.begins ? 1 : 0, leaf.ends ? 1 : 0, leaf.leaf});
    }
    return {staging->add(bf16), staging->add(fp32)};
  }
  static DeviceLeaves staged(const std::vector<LeafRows>& leaves, const cuda::Staging& staging,
                             std::pair<int64_t, int64_t> handles) {
    DeviceLeaves out;
    out.bf16 = staging.at<ops::WeightGradientLeaf>(handles.first);
    out.fp32 = staging.at<ops::WeightGradientRows>(handles.second);
    out.count = static_cast<int64_t>(leaves.size());
    if (leaves.empty()) return out;
    out.continues = !leaves.front().begins;
    out.waits = !leaves.back().ends;
    for (const LeafRows& leaf : leaves) {
      const bool cut = !leaf.begins || !leaf.ends;
      out.long_leaf =
          out.long_leaf || (cut && leaf.rows_before + leaf.end - leaf.begin > numerics::kGradientChunk);
    }
    return out;
  }

  // image of W [n, k] at `offset` += per leaf the chain of dy^T x over its rows.
  void add_matrix(int64_t offset, const float* dy, int64_t lddy, const float* x, int64_t /*rows*/, int64_t n,
                  int64_t k, const DeviceLeaves& leaves) {
    if (leaves.count == 0) return;
    ops::WeightGradientSink sink;
    if (leaves.continues || leaves.waits) {
      Carry& carry = carries_[offset];
      carry.chain.ensure(n * k, kCutChains);
      if (leaves.long_leaf) carry.chunk_sums.ensure(n * k, kCutChains);
      sink.carry = carry.chain.data();
      sink.chunk_sum = carry.chunk_sums.data();
    }
    sink.image = image_.data() + offset;
    sink.bound = leaf_bound_;
    sink.fault = {fault_.data(), rank(offset)};
    sink.fault_leaf_shift = kLeafShift;
    ops::matmul_weight_gradient_fp32_cuda(device_, dy, lddy, x, k, n, k, leaves.fp32, leaves.count, sink);
  }
  void add_matrix(int64_t offset, const Bf16* dy, int64_t lddy, const Bf16* x, int64_t rows, int64_t n,
                  int64_t k, const DeviceLeaves& leaves) {
    if (leaves.count == 0) return;
    ops::WeightGradientBf16 target;
    if (leaves.continues || leaves.waits) {
      cuda::DeviceBuffer<float>& chain = carries_[offset].chain;  // [1 or 2][n, k]
      target.carry_in = chain.data();
      if (leaves.continues && leaves.waits) {  // the product may not read what it writes
        incoming_.ensure(chain.size(), kCutChains);
        cuda::copy_on_device(device_, incoming_.data(), chain.data(), chain.size_bytes());
        target.carry_in = incoming_.data();
      }
      if (leaves.waits) chain.ensure((leaves.long_leaf ? 2 : 1) * n * k, kCutChains);
      target.carry_out = chain.data();
    }
    target.leaves = leaves.bf16;
    target.leaf_count = static_cast<int32_t>(leaves.count);
    target.image = image_.data() + offset;
    target.bound = leaf_bound_;
    target.fault = {fault_.data(), rank(offset)};
    ops::matmul_weight_gradient_bf16_cuda(device_, dy, lddy, x, k, rows, n, k, target);
  }
  template <class E>
  void add_gain(int64_t offset, const E* dy, const E* x, const float* inverse_rms, int64_t h,
                const ops::VectorPiece* pieces, int64_t n) {
    TensorOps<E>::gain_gradient(device_, dy, x, inverse_rms, h, pieces, n, piece_bound_,
                                image_.data() + offset, {fault_.data(), kPieces + rank(offset)});
  }
  template <class E>
  void add_bias(int64_t offset, const E* dy, int64_t ld, int64_t n, const ops::VectorPiece* pieces,
                int64_t n_pieces) {
    TensorOps<E>::bias_gradient(device_, dy, ld, n, pieces, n_pieces, piece_bound_, image_.data() + offset,
                                {fault_.data(), kPieces + rank(offset)});
  }
  template <class E>
  void add_embedding(int64_t offset, const E* dh, const int32_t* ids, int64_t rows, int64_t h) {
    TensorOps<E>::embedding_gradient(device_, dh, ids, rows, h, piece_bound_, image_.data() + offset,
                                     {fault_.data(), kPieces + rank(offset)});
  }

  Status status() const {
    unsigned long long key = 0;
    fault_.download(device_, &key, 1);
    if (key == cuda::kNoFault) return ok_status();
    const auto parameter = static_cast<size_t>(key & ((1ULL << kLeafShift) - 1));
    const std::string where = key >= kPieces ? "a token's part" : "leaf " + std::to_string(key >> kLeafShift);
    return stopped(
        "gradient of {} ({}) is NaN, infinite or too large; lower the learning rate or check the data",
        table_.by_name()[parameter].name, where);
  }

  int64_t* data() { return image_.data(); }
  const int64_t* data() const { return image_.data(); }

 private:
  unsigned long long rank(int64_t offset) const {
    return static_cast<unsigned long long>(&table_.at(offset) - table_.by_name().data());
  }

  // Of a matrix one of whose leaves was cut, between two calls.
  struct Carry {
    cuda::DeviceBuffer<float> chain;
    cuda::DeviceBuffer<float> chunk_sums;  // fp32
  };
  static constexpr const char* kCutChains =
      "gradient chains cut by micro-batches; --max-tokens-per-gpu of a leaf or more needs none";

  const cuda::Context& device_;
  const ParameterTable& table_;
  cuda::DeviceBuffer<int64_t> image_;
  cuda::DeviceBuffer<unsigned long long> fault_;
  std::unordered_map<int64_t, Carry> carries_;  // by offset
  cuda::DeviceBuffer<float> incoming_;          // bf16
  float leaf_bound_ = 0;
  float piece_bound_ = 0;
};

}  // namespace lockstep::model
