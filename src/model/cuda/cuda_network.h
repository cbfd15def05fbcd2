// SPDX-License-Identifier: Apache-2.0
// Weights on the GPU and the one forward definition over them. The text follows cpu/cpu_network.h.
// E: float or Bf16.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/memory.h"
#include "device/cuda/staging.h"
#include "model/config.h"
#include "model/cuda/sizes.h"
#include "model/cuda/tensor_ops.h"
#include "model/parameters.h"

namespace lockstep::model {

// What a layer's backward pass needs; all row-major.
template <class E>
struct DeviceActivations {
  cuda::DeviceBuffer<float> inverse_rms1;  // [rows]
  cuda::DeviceBuffer<E> qkv;               // [rows, qkv_size]
  cuda::DeviceBuffer<float> max_exponent;  // [rows, heads]
  cuda::DeviceBuffer<float> inverse_sum;   // [rows, heads]
  cuda::DeviceBuffer<E> attention;         // [rows, heads*d]; +0 in rows of padding
  cuda::DeviceBuffer<E> h_mid;             // [rows, H]
  cuda::DeviceBuffer<float> inverse_rms2;  // [rows]
  cuda::DeviceBuffer<E> gate_up;           // [rows, 2F]

  void ensure(const ModelConfig& config, int64_t rows) {
    const char* what = "activations; a smaller --max-tokens-per-gpu needs less";
    const LayerElements elements(config, rows);
    inverse_rms1.ensure(elements.row, what);
    qkv.ensure(elements.qkv, what);
    max_exponent.ensure(elements.statistics, what);
    inverse_sum.ensure(elements.statistics, what);
    attention.ensure(elements.attention, what);
    h_mid.ensure(elements.h_mid, what);
    inverse_rms2.ensure(elements.row, what);
    gate_up.ensure(elements.gate_up, what);
  }
};

template <class E>
struct DeviceScratch {
  cuda::DeviceBuffer<E> normed;       // [rows, H]
  cuda::DeviceBuffer<E> act;          // [rows, F]
  cuda::DeviceBuffer<float> product;  // [rows, qkv_size], where the head size needs it
  void ensure(const ModelConfig& config, int64_t rows) {
    const ScratchElements elements(config, rows);
    normed.ensure(elements.normed, "activations");
    act.ensure(elements.act, "activations");
    product.ensure(elements.product, "activations");
  }
};

// Key of an attention fault: the layer, then the row.
inline constexpr int kFaultLayerShift = 40;

template <class E>
class CudaNetwork {
 public:
  using Ops = TensorOps<E>;
  CudaNetwork(const cuda::Context& device, const ModelConfig& config, const ParameterTable& table)
      : device_(device), config_(config), table_(table), arena_(table.arena_size(), "the weights") {
    arena_.zero(device);
  }

  const cuda::Context& device() const { return device_; }
  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  E* arena() { return arena_.data(); }
  const E* at(int64_t offset) const { return arena_.data() + offset; }
  const ops::RopeDeviceTable& rope() const { return rope_; }

  void set_rope(const ops::RopeTable& table) {
    const int64_t size = table.positions * table.head_size / 2;
    cos_.ensure(size, "the RoPE tables");
    sin_.ensure(size, "the RoPE tables");
    cos_.upload(device_, table.cos.data(), size);
    sin_.upload(device_, table.sin.data(), size);
    device_.synchronize();
    rope_ = {table.head_size, cos_.data(), sin_.data()};
  }

  // One layer: h_in [rows, H] -> h_out; in rollout h_mid = h_in = h_out and gate_up is not kept. pages null:
  // whole samples, attention over the rows themselves.
  void layer_forward(int64_t layer, const DeviceRows& rows, const DevicePages<E>* pages, const E* h_in,
                     E* h_mid, E* h_out, DeviceActivations<E>* a, DeviceScratch<E>* scratch,
                     unsigned long long* fault) const {
    const LayerOffsets& offsets = table_.layer(layer);
    const int64_t n = rows.rows;
    const int64_t h = config_.hidden;
    const int64_t f = config_.intermediate;
    const int64_t q = config_.q_size();
    const cuda::Fault score{fault, static_cast<unsigned long long>(layer) << kFaultLayerShift};
    E* normed = scratch->normed.data();
    Ops::norm(device_, h_in, at(offsets.input_norm), config_.rms_eps, n, h, normed, a->inverse_rms1.data());
    Ops::qkv(device_, config_, normed, at(offsets.qkv), at(offsets.qkv_bias), rope_, rows,
             scratch->product.data(), a->qkv.data());
    if (pages == nullptr) {
      cuda::fill(device_, a->attention.data(), 0, n * q * static_cast<int64_t>(sizeof(E)));
      Ops::attention(device_, config_, a->qkv.data(), rows, a->attention.data(), a->max_exponent.data(),
                     a->inverse_sum.data(), score);
    } else {
      Ops::paged_attention(device_, config_, a->qkv.data(), rows, *pages, layer, a->attention.data(), score);
    }
    Ops::add_product(device_, a->attention.data(), at(offsets.o), n, h, q, h_in, h_mid);
    Ops::norm(device_, h_mid, at(offsets.post_norm), config_.rms_eps, n, h, normed, a->inverse_rms2.data());
    Ops::gate_up(device_, normed, at(offsets.gate_up), n, f, h, pages == nullptr, a->gate_up.data(),
                 scratch->act.data());
    Ops::add_product(device_, scratch->act.data(), at(offsets.down), n, h, f, h_mid, h_out);
  }

 private:
  const cuda::Context& device_;
  const ModelConfig& config_;
  const ParameterTable& table_;
  cuda::DeviceBuffer<E> arena_;
  cuda::DeviceBuffer<float> cos_, sin_;
  ops::RopeDeviceTable rope_;
};

}  // namespace lockstep::model
