// SPDX-License-Identifier: Apache-2.0
// What a step of rollout and training allocates on a GPU against what was counted beforehand, and what a GPU
// without room leaves behind.
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/cuda/error.h"
#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "model/gpu.h"
#include "model/load.h"
#include "needs_gpu.h"
#include "ops/embedding/embedding_cuda.h"
#include "rollout/engine.h"
#include "sanitized.h"
#include "trainer/trainer.h"

namespace lockstep::loop {
namespace {

using model::MemoryPart;
using model::Profile;
using testing::cases;
using testing::sanitized;

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.layers = 3;
  config.hidden = 128;
  config.intermediate = 320;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 32;
  config.vocab = 5003;
  config.max_positions = 512;
  return config;
}

struct Shape {
  int64_t samples = 24, prompt = 16, response = 30;
  int64_t running = 10, prefill = 32;
  int64_t max_tokens = 200;
  int64_t leaves = 4;
  bool recompute = false;
  int64_t longest() const { return prompt + response; }
};

int64_t padded(int64_t rows, Profile profile) {
  return profile == Profile::kBf16 ? (rows + 15) / 16 * 16 : rows;
}

model::GpuWork work_of(const Shape& s, Profile profile, const model::ModelConfig& config) {
  model::GpuWork work;
  work.running = std::min(s.running, s.samples);
  work.step_rows = work.running + 1 + s.prefill;
  work.longest = work.keys = s.longest();
  work.kv_pages = std::max<int64_t>(64, work.running * ((s.longest() + 63) / 64 + 1));  // the least it takes
  work.positions = config.max_positions;
  work.trains = true;
  const int64_t one = padded(s.longest() - 1, profile);
  work.rows = std::max(one, std::min(s.max_tokens, s.samples * one));
  work.leaf_rows = std::min(s.samples * one, s.samples * one / s.leaves + one);
  work.cut_leaves = work.leaf_rows > work.rows;
  work.recompute = s.recompute;
  return work;
}

// One step of a run: samples drawn, then an update with them.
class Step {
 public:
  Step(Profile profile, const model::ModelConfig& config, const Shape& shape)
      : shape_(shape), context_(2, cpu::isa_from_name("auto").value()) {
    model_ = model::make_model(profile, config, {"cuda", 0, 0}).value();
    model::initialise_parameters(context_, model_->table(), 7, 0.05F, model_->masters());
    model_->prepare(context_, config.max_positions);
    placed_model_ = cuda::memory_count().now;
  }
  void make_trainer() {
    state_.m = Buffer<float>::zeros(model_->table().arena_size());
    state_.v = Buffer<float>::zeros(model_->table().arena_size());
    trainer::UpdateConfig update;
    update.grad_leaves = shape_.leaves;
    trainer_ = std::make_unique<trainer::Trainer>(model_.get(), &state_, update, shape_.recompute);
    placed_state_ = cuda::memory_count().now;
  }
  void rollout() {
    if (!engine_) {
      rollout::EngineConfig engine;
      engine.max_running_requests = shape_.running;
      engine.chunked_prefill_size = shape_.prefill;
      engine_ = std::make_unique<rollout::Engine>(*model_, engine);
    }
    std::vector<rollout::Request> requests(static_cast<size_t>(shape_.samples));
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].ordinal = i / 2;
      requests[i].sample_index = static_cast<uint32_t>(i % 2);
      for (int64_t t = 0; t < shape_.prompt; ++t)
        requests[i].prompt.push_back(
            static_cast<int32_t>((i / 2 * 131 + static_cast<size_t>(t) * 17) % 5003));
    }
    rollout::GenerationSettings settings;
    settings.sampling.max_new_tokens = shape_.response;
    settings.sampleable = model_->config().vocab;
    const auto completions = engine_->generate(context_, requests, settings);
    ASSERT_TRUE(completions.ok()) << completions.status().message();
    for (size_t i = 0; i < requests.size(); ++i) {
      trainer::TrainSample sample;
      sample.tokens = requests[i].prompt;
      sample.prompt_length = shape_.prompt;
      const rollout::Completion& c = completions.value()[i];
      sample.tokens.insert(sample.tokens.end(), c.tokens.begin(), c.tokens.end());
      sample.old_log_probs = c.log_probs;
      sample.advantage = i % 2 == 0 ? 1 : -1;
      samples_.push_back(std::move(sample));
    }
    placed_cache_ = cuda::memory_count().now;
  }
  void respond_longer(int64_t tokens) { shape_.response = tokens; }
  void update() {
    trainer::UpdateRequest request;
    request.samples = &samples_;
    request.total_updates = 2;
    request.max_tokens = shape_.max_tokens;
    auto metrics = trainer_->compute_gradient(context_, request);
    ASSERT_TRUE(metrics.ok()) << metrics.status().message();
    gradients_ = trainer_->learner().gradient_digests(context_);
    ASSERT_TRUE(trainer_->apply(context_, request, &metrics.value()).ok());
    weights_ = model_->weight_digests(context_);
    (void)trainer_->learner().state_digests(context_);
  }

  int64_t placed_model() const { return placed_model_; }
  int64_t placed_state() const { return placed_state_; }
  int64_t placed_cache() const { return placed_cache_; }
  const model::NamedDigests& gradients() const { return gradients_; }
  const model::NamedDigests& weights() const { return weights_; }
  trainer::Trainer& trainer() { return *trainer_; }

 private:
  Shape shape_;
  cpu::Context context_;
  std::unique_ptr<model::Model> model_;
  trainer::OptimizerState state_;
  std::unique_ptr<trainer::Trainer> trainer_;
  std::unique_ptr<rollout::Engine> engine_;
  std::vector<trainer::TrainSample> samples_;
  model::NamedDigests gradients_, weights_;
  int64_t placed_model_ = 0, placed_state_ = 0, placed_cache_ = 0;
};

// Of the parts whose names begin so.
int64_t bytes_of(const std::vector<MemoryPart>& parts, std::initializer_list<const char*> names) {
  int64_t sum = 0;
  for (const char* name : names) {
    for (const MemoryPart& part : parts) {
      if (part.name.rfind(name, 0) == 0) sum += part.bytes;
    }
  }
  return sum;
}

void expect_counted(Profile profile, const model::ModelConfig& config, const Shape& shape) {
  constexpr int64_t kSmall = 4096;  // words for faults and sums
  const std::vector<MemoryPart> parts = model::gpu_memory(profile, config, work_of(shape, profile, config));
  const int64_t before = cuda::memory_count().now;
  cuda::reset_peak();
  Step step(profile, config, shape);
  EXPECT_EQ(step.placed_model() - before, bytes_of(parts, {"weights", "RoPE"}));
  step.make_trainer();
  const int64_t state = step.placed_state() - step.placed_model();
  const int64_t counted_state = bytes_of(parts, {"masters", "AdamW", "gradient image"});
  EXPECT_GE(state, counted_state);
  EXPECT_LE(state, counted_state + kSmall);
  step.rollout();
  if (::testing::Test::HasFatalFailure()) return;
  const int64_t bounds = bytes_of(parts, {"scratch"});
  EXPECT_LE(step.placed_cache() - step.placed_state(), bytes_of(parts, {"keys", "decode"}) + bounds);
  step.update();
  if (::testing::Test::HasFatalFailure()) return;
  const int64_t trained = cuda::memory_count().now - step.placed_cache();
  const int64_t counted_training = bytes_of(parts, {"gradient chains", "activations", "logits"});
  EXPECT_LE(trained, counted_training + bounds);
  EXPECT_GE(trained, counted_training - bounds);
  const int64_t peak = cuda::memory_count().peak - before;
  EXPECT_LE(peak, model::memory_sum(parts));
  std::printf("[   NOTE   ] counted %.4f GiB, allocated %.4f GiB\n",
              static_cast<double>(model::memory_sum(parts)) * 0x1p-30, static_cast<double>(peak) * 0x1p-30);
}

TEST(GpuMemory, TheSumIsWhatIsAllocated) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const Profile profile : {Profile::kFp32, Profile::kBf16}) {
    for (const bool recompute : {false, true}) {
      for (const int64_t max_tokens : cases<int64_t>({450, 100, 100000}, 1)) {
        SCOPED_TRACE(std::string(model::profile_name(profile)) + " recompute " + std::to_string(recompute) +
                     " max tokens " + std::to_string(max_tokens));
        Shape shape;
        shape.recompute = recompute;
        shape.max_tokens = max_tokens;
        if (sanitized()) shape.response = 5;
        expect_counted(profile, small_config(), shape);
      }
    }
  }
  EXPECT_EQ(cuda::memory_count().now, 0);
}

TEST(GpuMemory, ARecipesShape) {
  LOCKSTEP_NEEDS_HOPPER();
  model::ModelConfig config = small_config();  // Qwen2.5-0.5B, of fewer layers
  config.layers = 4;
  config.hidden = 896;
  config.intermediate = 4864;
  config.heads = 14;
  config.kv_heads = 2;
  config.head_size = 64;
  config.vocab = 151936;
  config.tied = true;
  config.max_positions = 32768;
  Shape shape;
  shape.samples = sanitized() ? 8 : 64;
  shape.prompt = 100;
  shape.response = sanitized() ? 3 : 60;
  shape.running = 64;
  shape.prefill = 512;
  shape.max_tokens = 4096;
  shape.leaves = 32;
  expect_counted(Profile::kBf16, config, shape);
}

// An evaluation's cache, then a larger one of a rollout: never both.
TEST(GpuMemory, ALongerCacheTakesThePlaceOfAShorter) {
  LOCKSTEP_NEEDS_HOPPER();
  const model::ModelConfig config = small_config();
  const int64_t page = config.layers * 2 * config.kv_heads * 64 * config.head_size * 2;
  Shape shape;
  shape.samples = shape.running = 10;
  Step step(Profile::kBf16, config, shape);
  step.rollout();  // 10 x 2 pages
  const int64_t before = cuda::memory_count().now;
  step.respond_longer(sanitized() ? 100 : 400);  // 10 x 3, 10 x 8
  cuda::reset_peak();
  step.rollout();
  const int64_t grown = cuda::memory_count().peak - before;
  const int64_t pages = sanitized() ? 10 : 60;
  EXPECT_GE(grown, pages * page);
  EXPECT_LE(grown, (pages + 10) * page);
}

// Steps of several sizes: each is recorded once, and replayed in the next rollout, too.
TEST(DecodeGraphs, AreKept) {
  LOCKSTEP_NEEDS_HOPPER();
  Shape shape;  // 24 samples, 10 at a time: the last steps have 4
  if (sanitized()) shape.response = 10;
  const int64_t none = cuda::graphs_recorded();
  Step step(Profile::kBf16, small_config(), shape);
  for (int i = 0; i < 3; ++i) step.rollout();  // a size is recorded the second time that it comes
  const int64_t recorded = cuda::graphs_recorded() - none;
  EXPECT_GE(recorded, 2);
  step.rollout();
  EXPECT_EQ(cuda::graphs_recorded() - none, recorded);
}

// Takes what is free, but for less than an update's logits.
std::vector<cuda::DeviceBuffer<char>> take_all() {
  std::vector<cuda::DeviceBuffer<char>> out;
  for (int64_t bytes = int64_t{64} << 30; bytes >= int64_t{1} << 20; bytes /= 2) {
    try {
      while (true) out.emplace_back(bytes, "nothing");
    } catch (const cuda::Error& error) {
      EXPECT_TRUE(error.out_of_memory()) << error.what();
      EXPECT_NE(std::string(error.what()).find("GiB for nothing ("), std::string::npos) << error.what();
    }
  }
  return out;
}

TEST(GpuMemory, AnUpdateWithoutRoomThrowsAndIsTheSameLater) {
  LOCKSTEP_NEEDS_HOPPER();
  Shape shape;
  shape.samples = 64;
  if (sanitized()) shape.response = 3;
  Step calm(Profile::kBf16, small_config(), shape);
  calm.make_trainer();
  calm.rollout();
  calm.update();
  Step step(Profile::kBf16, small_config(), shape);
  step.make_trainer();
  step.rollout();
  {
    const auto hog = take_all();
    try {
      step.update();
      ADD_FAILURE() << "there was room";
    } catch (const DeviceError& error) {
      EXPECT_TRUE(error.out_of_memory()) << error.what();
      EXPECT_NE(std::string(error.what()).find(" GiB for "), std::string::npos) << error.what();
    }
  }
  step.update();
  EXPECT_TRUE(step.gradients() == calm.gradients());
  EXPECT_TRUE(step.weights() == calm.weights());
}

// In a process of its own: a GPU's context does not recover from this.
[[noreturn]] void lose_the_gpu() {
  try {
    const cuda::Context context(0);
    cuda::DeviceBuffer<int32_t> ids(1);
    cuda::DeviceBuffer<float> out(64);
    ids.zero(context);
    const auto* nowhere = reinterpret_cast<const float*>(uintptr_t{1} << 46);
    ops::embedding_forward_fp32_cuda(context, nowhere, ids.data(), 1, 64, out.data());
    context.synchronize();
  } catch (const DeviceError& error) {
    std::fprintf(stderr, "%s%s\n", error.what(), error.out_of_memory() ? " (memory)" : "");
    std::_Exit(4);
  }
  std::_Exit(0);
}

TEST(GpuErrorsDeathTest, ALostGpuIsNamed) {
  LOCKSTEP_NEEDS_GPU();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(lose_the_gpu(), ::testing::ExitedWithCode(4),
              "CUDA error while waiting for the GPU: an illegal memory access.*ErrorIllegalAddress");
}

}  // namespace
}  // namespace lockstep::loop
