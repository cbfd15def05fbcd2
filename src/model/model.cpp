// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <algorithm>

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

void advance(const DrawnToken* drawn, DecodeBatch* batch) {
  for (size_t i = 0; i < batch->ids.size(); ++i) {
    batch->ids[i] = drawn[i].token;
    ++batch->positions[i];
    ++batch->runs[i].first_position;
    ++batch->draws[i].position;
  }
}

Status Decoder::steps(const cpu::Context& context, const DecodeBatch& batch, int64_t n,
                      const ops::SamplingSettings& sampling, std::vector<DrawnToken>* drawn) {
  LOCKSTEP_RETURN_IF_ERROR(step(context, batch, sampling, drawn));
  DecodeBatch next = batch;
  const size_t rows = batch.ids.size();
  const auto bad = [](const DrawnToken& d) { return d.token < 0; };
  std::vector<DrawnToken> more;
  for (int64_t done = 1; done < n; ++done) {
    const DrawnToken* last = drawn->data() + drawn->size() - rows;
    if (std::any_of(last, last + rows, bad)) return ok_status();  // the first step's
    advance(last, &next);
    if (!step(context, next, sampling, &more).ok() || std::any_of(more.begin(), more.end(), bad))
      return ok_status();
    drawn->insert(drawn->end(), more.begin(), more.end());
  }
  return ok_status();
}

std::unique_ptr<Model> make_model(Profile profile, const ModelConfig& config) {
  return make_cpu_model(profile, config);
}

Result<std::unique_ptr<Model>> make_model(Profile profile, const ModelConfig& config,
                                          const DeviceChoice& choice) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ChosenDevice device, choose_device(profile, config, choice));
  if (!device.gpu) return make_model(profile, config);
  return make_cuda_model(profile, config, choice);
}

MemoryNeeds memory_needs(const cpu::Context& context, Profile profile, const ModelConfig& config,
                         int64_t rows, int64_t loss_rows, bool recompute) {
  return cpu_memory_needs(context, profile, config, rows, loss_rows, recompute);
}

}  // namespace lockstep::model
