// SPDX-License-Identifier: Apache-2.0
// A rollout and the gradient of its samples for head sizes that take different ways through the ops: the
// GPU's bits are the CPU's.
#include <gtest/gtest.h>

#include "model/load.h"
#include "model/model.h"
#include "needs_gpu.h"
#include "rollout/engine.h"
#include "sanitized.h"
#include "trainer/trainer.h"

namespace lockstep::loop {
namespace {

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
  model::NamedDigests gradients;
};

Outcome run(model::Profile profile, const model::ModelConfig& config, const char* device) {
  const cpu::Context context(2, cpu::isa_from_name("auto").value());
  const auto model = model::make_model(profile, config, {device, 0, 0}).value();
  model::initialise_parameters(context, model->table(), 7, 0.1F, model->masters());
  model->prepare(context, config.max_positions);
  rollout::Engine engine(*model, {});
  std::vector<rollout::Request> requests(3);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].ordinal = i;
    for (size_t t = 0; t < 5 + 9 * i; ++t)
      requests[i].prompt.push_back(static_cast<int32_t>((i * 31 + t * 17) % 131));
  }
  rollout::GenerationSettings settings;
  settings.sampling.max_new_tokens = testing::sanitized() ? 4 : 12;
  settings.sampleable = config.vocab;
  const auto completions = engine.generate(context, requests, settings);
  EXPECT_TRUE(completions.ok()) << completions.status().message();
  Outcome out;
  if (!completions.ok()) return out;
  std::vector<trainer::TrainSample> samples;
  for (size_t i = 0; i < requests.size(); ++i) {
    const rollout::Completion& c = completions.value()[i];
    out.tokens.insert(out.tokens.end(), c.tokens.begin(), c.tokens.end());
    out.log_probs.insert(out.log_probs.end(), c.log_probs.begin(), c.log_probs.end());
    trainer::TrainSample sample;
    sample.tokens = requests[i].prompt;
    sample.prompt_length = static_cast<int64_t>(requests[i].prompt.size());
    sample.tokens.insert(sample.tokens.end(), c.tokens.begin(), c.tokens.end());
    sample.old_log_probs = c.log_probs;
    sample.advantage = i % 2 == 0 ? 1 : -1;
    samples.push_back(std::move(sample));
  }
  trainer::OptimizerState state;
  state.m = Buffer<float>::zeros(model->table().arena_size());
  state.v = Buffer<float>::zeros(model->table().arena_size());
  trainer::UpdateConfig update;
  update.grad_leaves = 2;
  trainer::Trainer trainer(model.get(), &state, update, false);
  trainer::UpdateRequest request;
  request.samples = &samples;
  request.total_updates = 2;
  request.max_tokens = 64;
  const auto metrics = trainer.compute_gradient(context, request);
  EXPECT_TRUE(metrics.ok()) << metrics.status().message();
  out.gradients = trainer.learner().gradient_digests(context);
  return out;
}

TEST(HeadSizes, TheGpuEqualsTheCpu) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const model::Profile profile : {model::Profile::kFp32, model::Profile::kBf16}) {
    for (const int64_t head_size : testing::cases<int64_t>({64, 24, 192, 8, 96, 128, 256}, 3)) {
      SCOPED_TRACE(std::string(model::profile_name(profile)) + " " + std::to_string(head_size));
      model::ModelConfig config;
      config.layers = 2;
      config.hidden = 64;
      config.intermediate = 72;
      config.heads = 2;
      config.kv_heads = 1;
      config.head_size = head_size;
      config.vocab = 131;
      config.max_positions = 64;
      const Outcome cpu = run(profile, config, "cpu"), gpu = run(profile, config, "cuda");
      EXPECT_EQ(cpu.tokens, gpu.tokens);
      EXPECT_EQ(cpu.log_probs, gpu.log_probs);
      EXPECT_TRUE(cpu.gradients == gpu.gradients);
      EXPECT_FALSE(gpu.gradients.empty());
    }
  }
}

}  // namespace
}  // namespace lockstep::loop
