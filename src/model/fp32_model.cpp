// SPDX-License-Identifier: Apache-2.0
// Profile fp32 on the CPU: the masters are the weights.
#include "model/cpu_models.h"
#include "model/cpu_tensors.h"
#include "model/training_pass.h"
#include "model/vocabulary_pass.h"

namespace lockstep::model {
namespace {

class Fp32Learner : public CpuLearner<Network, TrainingPass, VocabularyPass> {
 public:
  Fp32Learner(Network* network, OptimizerState* state, bool recompute)
      : CpuLearner(*network, network->table(), state, recompute), mutable_network_(network) {}
  int64_t row_pad() const override { return 1; }
  void apply(const cpu::Context& context, const ops::AdamWFactors& factors) override {
    for (const Parameter& p : table_.by_name()) {
      ops::adamw_cpu(context, factors, p.decays(), image_->data() + p.offset, p.size,
                     state_->m.data() + p.offset, state_->v.data() + p.offset,
                     mutable_network_->arena() + p.offset);
    }
    mutable_network_->repack(context);
  }

 private:
  Network* mutable_network_;
};

class Fp32Model : public Model {
 public:
  explicit Fp32Model(const ModelConfig& config)
      : Model(config, ParameterTable(config)), network_(config, ParameterTable(config)) {}
  Profile profile() const override { return Profile::kFp32; }
  float* masters() override { return network_.arena(); }
  const float* masters() const override { return network_.arena(); }
  void prepare(const cpu::Context& context, int64_t positions) override {
    network_.prepare(context, positions);
  }
  DType weight_type() const override { return DType::kF32; }
  const void* weights(int64_t offset) const override { return network_.at(offset); }
  NamedDigests weight_digests(const cpu::Context& context) const override {
    return digest_parameters(context, table(), network_.arena());
  }
  std::unique_ptr<Decoder> make_decoder() const override {
    return std::make_unique<CpuDecoder<Network>>(network_);
  }
  std::unique_ptr<Learner> make_learner(OptimizerState* state, bool recompute) override {
    return std::make_unique<Fp32Learner>(&network_, state, recompute);
  }

 private:
  Network network_;
};

}  // namespace

std::unique_ptr<Model> make_fp32_model(const ModelConfig& config) {
  return std::make_unique<Fp32Model>(config);
}

MemoryNeeds fp32_memory_needs(const cpu::Context& context, const ModelConfig& config, int64_t rows,
                              int64_t loss_rows, bool recompute) {
  constexpr int64_t kFloat = sizeof(float);
  MemoryNeeds out;
  out.weights = ParameterTable(config).arena_size() * kFloat;
  out.packed = Network::packed_bytes(context, config);
  out.kv_page = config.layers * kv_layer_floats(config) * kFloat;
  out.activations = TrainingPass::bytes(config, rows, recompute);
  out.logits = VocabularyPass::bytes(config, loss_rows);
  return out;
}

}  // namespace lockstep::model
