// SPDX-License-Identifier: Apache-2.0
// Profile bf16 on the CPU: binary32 masters, bfloat16 weights, products by emulation of TC16.
#include "model/cpu_models.h"
#include "model/cpu_tensors.h"
#include "model/network_bf16.h"
#include "model/training_pass_bf16.h"
#include "model/vocabulary_pass_bf16.h"
#include "numerics/constants.h"
#include "ops/adamw/adamw_bf16_cpu.h"
#include "ops/attention/attention_bf16.h"

namespace lockstep::model {
namespace {

class Bf16Learner : public CpuLearner<NetworkBf16, TrainingPassBf16, VocabularyPassBf16> {
 public:
  Bf16Learner(NetworkBf16* network, float* masters, OptimizerState* state, bool recompute)
      : CpuLearner(*network, network->table(), state, recompute),
        mutable_network_(network),
        masters_(masters) {}
  int64_t row_pad() const override { return numerics::kTokenPad; }
  void apply(const cpu::Context& context, const ops::AdamWFactors& factors) override {
    for (const Parameter& p : table_.by_name()) {
      ops::adamw_bf16_cpu(context, factors, p.decays(), image_->data() + p.offset, p.size,
                          state_->m.data() + p.offset, state_->v.data() + p.offset, masters_ + p.offset,
                          mutable_network_->arena() + p.offset);
    }
    mutable_network_->repack(context);
  }
  NamedDigests state_digests(const cpu::Context& context) const override {
    NamedDigests out = CpuLearner::state_digests(context);
    append_digests("master.", digest_parameters(context, table_, masters_), &out);
    return out;
  }

 private:
  NetworkBf16* mutable_network_;
  float* masters_;
};

class Bf16Model : public Model {
 public:
  explicit Bf16Model(const ModelConfig& config)
      : Model(config, ParameterTable(config)),
        masters_(Buffer<float>::zeros(table().arena_size())),
        network_(this->config(), table()) {}
  Profile profile() const override { return Profile::kBf16; }
  float* masters() override { return masters_.data(); }
  const float* masters() const override { return masters_.data(); }
  void prepare(const cpu::Context& context, int64_t positions) override {
    ops::round_weights_bf16_cpu(context, masters_.data(), masters_.size(), network_.arena());
    network_.prepare(context, positions);
  }
  DType weight_type() const override { return DType::kBF16; }
  const void* weights(int64_t offset) const override { return network_.at(offset); }
  NamedDigests weight_digests(const cpu::Context& context) const override {
    return digest_parameters(context, table(), network_.arena());
  }
  std::unique_ptr<Decoder> make_decoder() const override {
    return std::make_unique<CpuDecoder<NetworkBf16>>(network_);
  }
  std::unique_ptr<Learner> make_learner(OptimizerState* state, bool recompute) override {
    return std::make_unique<Bf16Learner>(&network_, masters_.data(), state, recompute);
  }

 private:
  Buffer<float> masters_;
  NetworkBf16 network_;
};

}  // namespace

std::unique_ptr<Model> make_bf16_model(const ModelConfig& config) {
  return std::make_unique<Bf16Model>(config);
}

MemoryNeeds bf16_memory_needs(const ModelConfig& config, int64_t rows, int64_t loss_rows, bool recompute) {
  constexpr int64_t kHalf = sizeof(Bf16);
  MemoryNeeds out;
  out.weights = ParameterTable(config).arena_size() * (kHalf + static_cast<int64_t>(sizeof(float)));
  out.packed = NetworkBf16::packed_bytes(config);
  out.kv_page = config.layers * 2 * ops::kv_block_elements_bf16(config.attention_shape()) * kHalf;
  out.activations = TrainingPassBf16::bytes(config, rows, recompute);
  out.logits = VocabularyPassBf16::bytes(config, loss_rows);
  return out;
}

}  // namespace lockstep::model
