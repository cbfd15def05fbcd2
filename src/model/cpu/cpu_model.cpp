// SPDX-License-Identifier: Apache-2.0
// Profile fp32: the masters are the weights. Profile bf16: binary32 masters, bfloat16 weights, products by
// emulation of TC16.
#include "model/cpu/cpu_model.h"

#include "model/cpu/cpu_tensors.h"
#include "numerics/constants.h"
#include "ops/adamw/adamw_bf16_cpu.h"

namespace lockstep::model {
namespace {

class Fp32Learner : public CpuLearner<float> {
 public:
  Fp32Learner(CpuNetwork<float>* network, float* /*masters*/, OptimizerState* state, bool recompute)
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
  CpuNetwork<float>* mutable_network_;
};

class Bf16Learner : public CpuLearner<Bf16> {
 public:
  Bf16Learner(CpuNetwork<Bf16>* network, float* masters, OptimizerState* state, bool recompute)
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
  CpuNetwork<Bf16>* mutable_network_;
  float* masters_;
};

template <class E>
class CpuModel : public Model {
 public:
  static constexpr bool kRounds = CpuOps<E>::kRounds;
  using ProfileLearner = std::conditional_t<kRounds, Bf16Learner, Fp32Learner>;

  explicit CpuModel(const ModelConfig& config)
      : Model(config, ParameterTable(config)),
        masters_(Buffer<float>::zeros(kRounds ? table().arena_size() : 0)),
        network_(this->config(), table()) {}
  Profile profile() const override { return kRounds ? Profile::kBf16 : Profile::kFp32; }
  float* masters() override {
    if constexpr (kRounds) {
      return masters_.data();
    } else {
      return network_.arena();
    }
  }
  const float* masters() const override { return const_cast<CpuModel*>(this)->masters(); }
  void prepare(const cpu::Context& context, int64_t positions) override {
    if constexpr (kRounds)
      ops::round_weights_bf16_cpu(context, masters_.data(), masters_.size(), network_.arena());
    network_.prepare(context, positions);
  }
  DType weight_type() const override { return kRounds ? DType::kBF16 : DType::kF32; }
  const void* weights(int64_t offset) const override { return network_.at(offset); }
  NamedDigests weight_digests(const cpu::Context& context) const override {
    return digest_parameters(context, table(), network_.arena());
  }
  std::unique_ptr<Decoder> make_decoder() const override { return std::make_unique<CpuDecoder<E>>(network_); }
  std::unique_ptr<Learner> make_learner(OptimizerState* state, bool recompute) override {
    return std::make_unique<ProfileLearner>(&network_, masters(), state, recompute);
  }

 private:
  Buffer<float> masters_;  // empty where they are the weights
  CpuNetwork<E> network_;
};

template <class E>
MemoryNeeds needs(const cpu::Context& context, const ModelConfig& config, int64_t rows, int64_t loss_rows,
                  bool recompute) {
  constexpr int64_t kElement = sizeof(E);
  constexpr int64_t kMaster = CpuOps<E>::kRounds ? sizeof(float) : 0;
  MemoryNeeds out;
  out.weights = ParameterTable(config).arena_size() * (kElement + kMaster);
  out.packed = CpuNetwork<E>::packed_bytes(context, config);
  out.kv_page = config.layers * CpuNetwork<E>::kv_layer_elements(config) * kElement;
  out.activations = CpuTrainingPass<E>::bytes(config, rows, recompute);
  out.logits = CpuVocabularyPass<E>::bytes(config, loss_rows);
  return out;
}

}  // namespace

std::unique_ptr<Model> make_cpu_model(Profile profile, const ModelConfig& config) {
  if (profile == Profile::kBf16) return std::make_unique<CpuModel<Bf16>>(config);
  return std::make_unique<CpuModel<float>>(config);
}

MemoryNeeds cpu_memory_needs(const cpu::Context& context, Profile profile, const ModelConfig& config,
                             int64_t rows, int64_t loss_rows, bool recompute) {
  return profile == Profile::kBf16 ? needs<Bf16>(context, config, rows, loss_rows, recompute)
                                   : needs<float>(context, config, rows, loss_rows, recompute);
}

}  // namespace lockstep::model
