// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/cuda_model.h"

#include <optional>
#include <utility>

#include "core/device_error.h"
#include "model/cuda/cuda_decoder.h"
#include "model/cuda/cuda_learner.h"
#include "ops/adamw/adamw_bf16_cpu.h"

namespace lockstep::model {
namespace {

template <class E>
class CudaModel : public Model, public DeviceMasters {
 public:
  static constexpr bool kRounded = sizeof(E) == 2;

  CudaModel(const ModelConfig& config, const DeviceChoice& choice)
      : Model(config, ParameterTable(config)),
        device_(choice.index, choice.sms),
        graphs_(choice.graphs),
        network_(device_, this->config(), table()),
        host_masters_(Buffer<float>::zeros(table().arena_size())) {}

  Profile profile() const override { return kRounded ? Profile::kBf16 : Profile::kFp32; }
  float* masters() override {
    bring_masters();
    return host_masters_.data();
  }
  const float* masters() const override {
    bring_masters();
    return host_masters_.data();
  }
  void prepare(const cpu::Context& context, int64_t positions) override {
    bring_masters();
    if constexpr (kRounded) {
      host_weights_.ensure(table().arena_size());
      ops::round_weights_bf16_cpu(context, host_masters_.data(), table().arena_size(), host_weights_.data());
      cuda::copy_to_device(device_, network_.arena(), host_weights_.data(), table().arena_size() * 2);
      if (masters_.size() > 0) masters_.upload(device_, host_masters_.data(), table().arena_size());
    } else {
      cuda::copy_to_device(device_, network_.arena(), host_masters_.data(), table().arena_size() * 4);
    }
    device_.synchronize();
    weights_newer_ = false;
    if (positions > positions_) {
      network_.set_rope(ops::make_rope_table(context, config().rope_base, config().head_size, positions));
      positions_ = positions;
    }
  }
  DType weight_type() const override { return kRounded ? DType::kBF16 : DType::kF32; }
  const void* weights(int64_t offset) const override {
    if constexpr (kRounded) {
      if (weights_newer_) {
        host_weights_.ensure(table().arena_size());
        cuda::copy_to_host(device_, host_weights_.data(), network_.at(0), table().arena_size() * 2);
        weights_newer_ = false;
      }
      return host_weights_.data() + offset;
    } else {
      bring_masters();
      return host_masters_.data() + offset;
    }
  }
  NamedDigests weight_digests(const cpu::Context& /*context*/) const override {
    NamedDigests out;
    if (!weight_digests_) weight_digests_.emplace(device_, table(), network_.at(0));
    weight_digests_->append("", &out);
    return out;
  }
  std::unique_ptr<Decoder> make_decoder() const override {
    return std::make_unique<CudaDecoder<E>>(network_, graphs_);
  }
  std::unique_ptr<Learner> make_learner(OptimizerState* state, bool recompute) override {
    return std::make_unique<CudaLearner<E>>(&network_, this, state, recompute);
  }

 private:
  float* device_masters() override {
    if constexpr (kRounded) {
      if (masters_.size() == 0) {
        masters_ = cuda::DeviceBuffer<float>(table().arena_size(), "the masters");
        masters_.upload(device_, host_masters_.data(), table().arena_size());
        device_.synchronize();
      }
      return masters_.data();
    } else {
      return network_.arena();
    }
  }
  void weights_moved() override {
    masters_newer_ = true;
    weights_newer_ = true;
  }
  void bring_masters() const {
    if (!masters_newer_) return;
    const float* from = nullptr;
    if constexpr (kRounded) {
      from = masters_.data();
    } else {
      from = network_.at(0);
    }
    cuda::copy_to_host(device_, host_masters_.data(), from, table().arena_size() * 4);
    masters_newer_ = false;
  }

  cuda::Context device_;
  const bool graphs_;
  CudaNetwork<E> network_;
  cuda::DeviceBuffer<float> masters_;  // bf16, from the first update on
  mutable std::optional<DeviceDigests> weight_digests_;
  mutable Buffer<float> host_masters_;
  mutable Buffer<E> host_weights_;  // bf16
  mutable bool masters_newer_ = false;
  mutable bool weights_newer_ = false;
  int64_t positions_ = 0;
};

}  // namespace

Result<GpuInfo> cuda_device(Profile profile, const ModelConfig& config, int device) try {
  const int count = cuda::device_count();
  if (device < 0 || device >= count)
    return invalid("this machine has {} usable GPUs{}", count, cuda::no_device_reason());
  const cuda::DeviceInfo info = cuda::device_info(device);
  if (info.major < 8) {
    return invalid("{} has compute capability {}.{}; 8.0 or later is needed", info.name, info.major,
                   info.minor);
  }
  if (profile == Profile::kBf16) {
    if (!info.hopper()) {
      return invalid(
          "{} has not Hopper's tensor cores, whose arithmetic --profile bf16 is (--profile fp32 runs on it)",
          info.name);
    }
    if (config.hidden % 8 != 0 || config.intermediate % 8 != 0 || config.head_size % 8 != 0) {
      return invalid(
          "--profile bf16: hidden_size {}, intermediate_size {} and head size {} must be multiples of 8",
          config.hidden, config.intermediate, config.head_size);
    }
  }
  return GpuInfo{device,
                 info.name,
                 info.major,
                 info.minor,
                 info.sms,
                 info.total_bytes,
                 info.free_bytes,
                 cuda::driver_version(),
                 cuda::runtime_version()};
} catch (const DeviceError& error) {  // a GPU that is full, taken or broken is one that can not be used
  return invalid("{}", error.what());
}

Result<std::unique_ptr<Model>> make_cuda_model(Profile profile, const ModelConfig& config,
                                               const DeviceChoice& choice) {
  if (const Result<GpuInfo> gpu = cuda_device(profile, config, choice.index); !gpu.ok())
    return invalid("--device cuda: {}; use --device cpu", gpu.status().message());
  if (profile == Profile::kFp32)
    return std::unique_ptr<Model>(std::make_unique<CudaModel<float>>(config, choice));
  return std::unique_ptr<Model>(std::make_unique<CudaModel<Bf16>>(config, choice));
}

}  // namespace lockstep::model
