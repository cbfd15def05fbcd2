// SPDX-License-Identifier: Apache-2.0
// A training step (4 samples x 128 tokens) and a decode step (16 sequences) of the Qwen2.5-0.5B shape with
// random weights, against what this machine's products and memory allow, measured in the same process. Prints
// JSON lines.
//   step_bench [THREADS] [ROUNDS] [fp32|bf16]
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "device/cpu/context.h"
#include "model/digests.h"
#include "model/load.h"
#include "model/model.h"
#include "ops/matmul/matmul.h"
#include "qwen_shape.h"
#include "rollout/engine.h"
#include "trainer/trainer.h"

namespace {
using namespace lockstep;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Weights of all products of one token, without the embedding lookup.
double product_weights(const model::ModelConfig& c) {
  const double layer =
      static_cast<double>(c.qkv_size() * c.hidden + c.hidden * c.q_size() + 3 * c.intermediate * c.hidden);
  return static_cast<double>(c.layers) * layer;
}

// fma per second of our forward product at 512 x 9728 x 896.
double product_rate(const cpu::Context& context, int rounds) {
  constexpr int64_t m = 512, n = 9728, k = 896;
  Buffer<float> w(n * k), x(m * k), y(m * n);
  for (float& v : w) v = 0.01F;
  for (float& v : x) v = 0.5F;
  ops::PackedMatrix packed;
  packed.pack(context, w.data(), n, k);
  std::vector<double> times;
  for (int i = 0; i < rounds + 1; ++i) {
    const auto start = Clock::now();
    ops::matmul_forward_cpu(context, x.data(), k, packed, m, {}, y.data(), n);
    if (i > 0) times.push_back(seconds_since(start));
  }
  return static_cast<double>(m * n * k) / median(times);
}

// Bytes per second of reading a large array with all threads.
double read_bandwidth(const cpu::Context& context, int rounds) {
  constexpr int64_t kFloats = int64_t{1} << 28;  // 1 GiB
  Buffer<float> data(kFloats);
  context.parallel_ranges(kFloats, 1 << 20, [&](int64_t begin, int64_t end) {
    std::fill(data.data() + begin, data.data() + end, 1.0F);
  });
  std::vector<double> times;
  std::atomic<uint64_t> sink{0};
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    context.parallel_ranges(kFloats, 1 << 20, [&](int64_t begin, int64_t end) {
      // Exclusive or of words: no chain of additions, so that memory is the only limit.
      uint32_t lanes[64] = {};
      const auto* words = reinterpret_cast<const uint32_t*>(data.data());
      for (int64_t j = begin; j < end; j += 64) {
        for (int lane = 0; lane < 64; ++lane) lanes[lane] ^= words[j + lane];
      }
      uint32_t all = 0;
      for (const uint32_t lane : lanes) all ^= lane;
      sink.fetch_xor(all, std::memory_order_relaxed);
    });
    times.push_back(seconds_since(start));
  }
  return static_cast<double>(kFloats) * sizeof(float) / median(times);
}

void train_bench(const cpu::Context& context, model::Model* model, double rate, int rounds) {
  const model::ModelConfig& c = model->config();
  constexpr int64_t kSamples = 4, kTokens = 128, kPrompt = 1;  // every position carries loss
  std::vector<trainer::TrainSample> samples(kSamples);
  for (int64_t s = 0; s < kSamples; ++s) {
    trainer::TrainSample& sample = samples[static_cast<size_t>(s)];
    for (int64_t t = 0; t < kTokens + 1; ++t)
      sample.tokens.push_back(static_cast<int32_t>((s * 7919 + t * 104729) % 151643));
    sample.prompt_length = kPrompt;
  }
  trainer::OptimizerState state;
  state.m = Buffer<float>::zeros(model->table().arena_size());
  state.v = Buffer<float>::zeros(model->table().arena_size());
  trainer::Trainer trainer(model, &state, {}, false);
  trainer::UpdateRequest request;
  request.samples = &samples;
  request.kind = trainer::LossKind::kSupervised;
  request.total_updates = 1;
  std::vector<double> gradient, apply, digest;
  for (int i = 0; i < rounds + 1; ++i) {
    auto start = Clock::now();
    trainer::UpdateMetrics metrics = trainer.compute_gradient(context, request).value();
    const double g = seconds_since(start);
    start = Clock::now();
    const Status status = trainer.apply(context, request, &metrics);
    if (!status.ok()) std::abort();
    const double a = seconds_since(start);
    start = Clock::now();
    trainer.learner().gradient_digests(context);
    model->weight_digests(context);
    for (const float* arena :
         {static_cast<const float*>(state.m.data()), static_cast<const float*>(state.v.data())}) {
      model::digest_parameters(context, model->table(), arena);
    }
    if (i == 0) continue;
    gradient.push_back(g);
    apply.push_back(a);
    digest.push_back(seconds_since(start));
  }
  const double loss_rows = static_cast<double>(kSamples * (kTokens + 1 - kPrompt));
  const double fma = 3 * (product_weights(c) * static_cast<double>(kSamples * kTokens) +
                          static_cast<double>(c.vocab * c.hidden) * loss_rows);
  const double step = median(gradient) + median(apply);
  fmt::print(
      "{{\"bench\":\"train_step\",\"threads\":{},\"tokens\":{},\"seconds\":{:.3f},\"gradient_s\":{:.3f},"
      "\"apply_s\":{:.3f},"
      "\"digests_s\":{:.3f},\"gfma\":{:.1f},\"share_of_product_rate\":{:.3f},\"gradient_share\":{:.3f}}}\n",
      context.threads(), kSamples * kTokens, step, median(gradient), median(apply), median(digest), fma / 1e9,
      fma / rate / step, fma / rate / median(gradient));
}

void decode_bench(const cpu::Context& context, const model::Model& model, double rate, double bandwidth) {
  const model::ModelConfig& c = model.config();
  constexpr int64_t kSequences = 16, kPrompt = 64, kNew = 24;
  rollout::EngineConfig config;
  rollout::Engine engine(model, config);
  std::vector<rollout::Request> requests(kSequences);
  for (int64_t s = 0; s < kSequences; ++s) {
    rollout::Request& r = requests[static_cast<size_t>(s)];
    for (int64_t t = 0; t < kPrompt; ++t)
      r.prompt.push_back(static_cast<int32_t>((s * 7919 + t * 104729) % 151643));
    r.ordinal = static_cast<uint64_t>(s);
  }
  rollout::GenerationSettings settings;
  settings.sampling.max_new_tokens = kNew;
  settings.sampleable = c.vocab;
  std::vector<double> steps;
  auto last = Clock::now();
  int64_t seen = 0;
  const auto result = engine.generate(context, requests, settings, [&](const rollout::Progress& p) {
    const double t = seconds_since(last);
    last = Clock::now();
    if (p.generated_tokens - seen == kSequences && seen > 0) steps.push_back(t);  // a pure decode step
    seen = p.generated_tokens;
  });
  if (!result.ok()) std::abort();
  const double weights = product_weights(c) + static_cast<double>(c.vocab * c.hidden);
  const double by_memory = weights * sizeof(float) / bandwidth;
  const double by_products = weights * kSequences / rate;
  const double floor = std::max(by_memory, by_products);
  fmt::print(
      "{{\"bench\":\"decode_step\",\"threads\":{},\"sequences\":{},\"seconds\":{:.4f},\"floor_memory_s\":{:."
      "4f},"
      "\"floor_products_s\":{:.4f},\"share_of_floor\":{:.3f}}}\n",
      context.threads(), kSequences, median(steps), by_memory, by_products, floor / median(steps));
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const cpu::Context context(threads, cpu::isa_from_name("auto").value());
  const double rate = product_rate(context, 5);
  const double bandwidth = read_bandwidth(context, 5);
  fmt::print(
      "{{\"bench\":\"machine\",\"threads\":{},\"isa\":\"{}\",\"product_gfma_s\":{:.1f},\"read_gb_s\":{:.1f}}}"
      "\n",
      threads, cpu::isa_name(context.isa()), rate / 1e9, bandwidth / 1e9);
  model::ModelConfig config = bench::qwen_half_billion(1024);
  const std::string profile = argc > 3 ? argv[3] : "fp32";
  const auto model = model::make_model(model::profile_from_name(profile).value(), config);
  model::initialise_parameters(context, model->table(), 1, 0.02F, model->masters());
  model->prepare(context, 1024);
  decode_bench(context, *model, rate, bandwidth);
  train_bench(context, model.get(), rate, rounds);
  return 0;
}
