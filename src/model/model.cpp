// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include "model/cpu/cpu_model.h"
#include "model/cuda/cuda_model.h"
#include "model/gpu.h"

namespace lockstep::model {

const char* profile_name(Profile profile) {
  return profile == Profile::kBf16 ? "bf16" : "fp32";
}

Result<Profile> profile_from_name(const std::string& name) {
  for (const Profile profile : {Profile::kFp32, Profile::kBf16}) {
    if (name == profile_name(profile)) return profile;
  }
  return invalid("--profile {}: unknown; use fp32 or bf16", name);
}

void MicroBatch::add_sample(const int32_t* tokens, int64_t n, int64_t pad) {
  samples.push_back({rows(), rows() + n});
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back(tokens[i]);
    positions.push_back(static_cast<int32_t>(i));
  }
  const auto padded = static_cast<size_t>((rows() + pad - 1) / pad * pad);
  ids.resize(padded, 0);
  positions.resize(padded, 0);
}

std::unique_ptr<Model> make_model(Profile profile, const ModelConfig& config) {
  return make_cpu_model(profile, config);
}

Result<std::unique_ptr<Model>> make_model(Profile profile, const ModelConfig& config,
                                          const DeviceChoice& choice) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ChosenDevice device, choose_device(profile, config, choice));
  if (!device.gpu) return make_model(profile, config);
  return make_cuda_model(profile, config, choice.index, choice.sms);
}

MemoryNeeds memory_needs(const cpu::Context& context, Profile profile, const ModelConfig& config,
                         int64_t rows, int64_t loss_rows, bool recompute) {
  return cpu_memory_needs(context, profile, config, rows, loss_rows, recompute);
}

}  // namespace lockstep::model
