// SPDX-License-Identifier: Apache-2.0
#include "loop/debug_logits.h"

#include <vector>

#include "checkpoint/safetensors.h"
#include "core/bytes.h"
#include "loop/machine.h"
#include "loop/sampling_run.h"
#include "model/load.h"
#include "numerics/fixed_point.h"
#include "rollout/engine.h"
#include "trainer/trainer.h"

namespace lockstep::loop {
namespace {

struct TokenTable {
  int64_t batch = 0;
  int64_t length = 0;
  std::vector<int32_t> ids;
};

Result<TokenTable> read_tokens(const std::string& path, int64_t vocab) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::SafetensorsFile file, checkpoint::SafetensorsFile::open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::TensorInfo* info, file.get("tokens"));
  if (info->shape.size() != 2 || info->shape[0] < 1 || info->shape[1] < 2 ||
      (info->dtype != DType::kI32 && info->dtype != DType::kI64)) {
    return invalid("{}: tokens must be int32 or int64 [B, T] with T of at least 2, found {}", path,
                   checkpoint::type_text(info->dtype, info->shape));
  }
  TokenTable table{info->shape[0], info->shape[1], {}};
  std::vector<char> bytes(static_cast<size_t>(info->size_bytes));
  LOCKSTEP_RETURN_IF_ERROR(file.read("tokens", bytes.data()));
  for (int64_t i = 0; i < table.batch * table.length; ++i) {
    const int64_t id = info->dtype == DType::kI32 ? load_le<int32_t>(bytes.data() + 4 * i)
                                                  : load_le<int64_t>(bytes.data() + 8 * i);
    if (id < 0 || id >= vocab) {
      return invalid("{}: tokens[{},{}] = {} is outside the vocabulary of {}", path, i / table.length,
                     i % table.length, id, vocab);
    }
    table.ids.push_back(static_cast<int32_t>(id));
  }
  return table;
}

Status append_logits(const cpu::Context& context, model::Model* model, const TokenTable& tokens,
                     checkpoint::SafetensorsWriter* out) {
  const std::unique_ptr<model::Learner> learner = model->make_learner(nullptr, true);
  const int64_t vocab = model->config().vocab;
  Buffer<float> logits;
  for (int64_t b = 0; b < tokens.batch; ++b) {
    model::MicroBatch batch;
    batch.add_sample(tokens.ids.data() + b * tokens.length, tokens.length, learner->row_pad());
    logits.ensure(batch.rows() * vocab);
    LOCKSTEP_RETURN_IF_ERROR(learner->logits(context, batch, logits.data()));
    LOCKSTEP_RETURN_IF_ERROR(
        out->append("logits", logits.data(), tokens.length * vocab * static_cast<int64_t>(sizeof(float))));
  }
  return ok_status();
}

std::vector<trainer::TrainSample> samples_of(const TokenTable& tokens) {
  std::vector<trainer::TrainSample> samples(static_cast<size_t>(tokens.batch));
  for (int64_t b = 0; b < tokens.batch; ++b) {
    trainer::TrainSample& sample = samples[static_cast<size_t>(b)];
    sample.tokens.assign(tokens.ids.begin() + b * tokens.length,
                         tokens.ids.begin() + (b + 1) * tokens.length);
    sample.prompt_length = 1;
  }
  return samples;
}

Result<std::vector<int32_t>> greedy_continuation(const cpu::Context& context, const model::Model& model,
                                                 const DebugLogitsConfig& config, const TokenTable& tokens) {
  rollout::Engine engine(model, config.machine.engine);
  std::vector<rollout::Request> requests(static_cast<size_t>(tokens.batch));
  for (int64_t b = 0; b < tokens.batch; ++b) {
    const auto row = tokens.ids.begin() + b * tokens.length;
    requests[static_cast<size_t>(b)].prompt.assign(row, row + config.prompt_len);
    requests[static_cast<size_t>(b)].ordinal = static_cast<uint64_t>(b);
  }
  rollout::GenerationSettings settings;
  settings.sampling.temperature = 0;
  settings.sampling.max_new_tokens = config.greedy;
  settings.sampleable = model.config().vocab;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto completions, engine.generate(context, requests, settings));
  std::vector<int32_t> out;
  for (size_t b = 0; b < requests.size(); ++b) {
    out.insert(out.end(), requests[b].prompt.begin(), requests[b].prompt.end());
    out.insert(out.end(), completions[b].tokens.begin(), completions[b].tokens.end());
  }
  return out;
}

std::vector<checkpoint::TensorSpec> output_specs(const DebugLogitsConfig& config, const model::Model& model,
                                                 const TokenTable& tokens) {
  std::vector<checkpoint::TensorSpec> specs = {
      {"logits", DType::kF32, {tokens.batch, tokens.length, model.config().vocab}},
      {"loss", DType::kF32, {1}}};
  if (config.grads) {
    for (const model::Parameter& p : model.table().by_name())
      specs.push_back({"grad." + p.name, DType::kF32, p.shape});
  }
  if (config.greedy > 0)
    specs.push_back({"greedy", DType::kI32, {tokens.batch, config.prompt_len + config.greedy}});
  return specs;
}

}  // namespace

Status run_debug_logits(const DebugLogitsConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_output_file(config.out, {config.tokens}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto context, make_context(config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto model,
                            model::load_model(config.hf_checkpoint, config.profile, config.machine.device));
  LOCKSTEP_ASSIGN_OR_RETURN(const TokenTable tokens, read_tokens(config.tokens, model->config().vocab));
  const int64_t positions = std::max(tokens.length, config.prompt_len + config.greedy);
  if (positions > model->config().max_positions) {
    return invalid("{}: {} positions exceed max_position_embeddings {}", config.tokens, positions,
                   model->config().max_positions);
  }
  if (config.greedy > 0 && (config.prompt_len < 1 || config.prompt_len > tokens.length)) {
    return invalid("--prompt-len {}: must be 1..{} with --greedy", config.prompt_len, tokens.length);
  }
  model->prepare(*context, positions);
  const std::vector<trainer::TrainSample> samples = samples_of(tokens);
  trainer::OptimizerState state;
  trainer::UpdateConfig update;
  update.loss.per_token = true;
  trainer::UpdateRequest request;
  request.samples = &samples;
  request.kind = trainer::LossKind::kSupervised;
  request.max_tokens = config.machine.max_tokens_per_gpu;
  trainer::Trainer trainer(model.get(), &state, update, false);
  LOCKSTEP_ASSIGN_OR_RETURN(const trainer::UpdateMetrics metrics,
                            trainer.compute_gradient(*context, request));
  std::vector<int32_t> greedy;
  if (config.greedy > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(greedy, greedy_continuation(*context, *model, config, tokens));
  }

  LOCKSTEP_ASSIGN_OR_RETURN(
      auto out, checkpoint::SafetensorsWriter::create(config.out, output_specs(config, *model, tokens)));
  for (const checkpoint::TensorInfo& info : std::vector<checkpoint::TensorInfo>(out.tensors())) {
    if (info.name == "logits") {
      LOCKSTEP_RETURN_IF_ERROR(append_logits(*context, model.get(), tokens, &out));
    } else if (info.name == "loss") {
      const float loss = static_cast<float>(metrics.loss);
      LOCKSTEP_RETURN_IF_ERROR(out.append("loss", &loss, sizeof(loss)));
    } else if (info.name == "greedy") {
      LOCKSTEP_RETURN_IF_ERROR(
          out.append("greedy", greedy.data(), static_cast<int64_t>(greedy.size() * sizeof(int32_t))));
    } else {
      const model::Parameter& p = *model->table().find(info.name.substr(5));
      const int64_t* image = trainer.learner().gradient_image();
      Buffer<float> gradient(p.size);
      for (int64_t i = 0; i < p.size; ++i) gradient[i] = numerics::gradient_from_fixed(image[p.offset + i]);
      LOCKSTEP_RETURN_IF_ERROR(out.append(info.name, gradient.data(), gradient.size_bytes()));
    }
  }
  return out.close();
}

}  // namespace lockstep::loop
