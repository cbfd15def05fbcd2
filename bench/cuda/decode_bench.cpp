// SPDX-License-Identifier: Apache-2.0
// Whole rollouts of the Qwen2.5-0.5B shape with random weights on a GPU, profile bf16: milliseconds a token
// (of all sequences together) for 1, 32 and 256 sequences of 100 + 300 tokens, with recorded steps and
// without, by the steps that follow each other without the scheduler. A digest of the tokens and log-probs
// shows that nothing of it changes a bit.
//   decode_bench [ROUNDS] [NEW_TOKENS] [SEQUENCES] [STEPS] [on|off]      one case with the last three;
//   SEQUENCES 0: all
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../qwen_shape.h"
#include "core/sha256.h"
#include "device/cpu/context.h"
#include "device/cpu/isa.h"
#include "model/model.h"
#include "rollout/engine.h"

namespace {
using namespace lockstep;
using Clock = std::chrono::steady_clock;

void fill(model::Model* model) {
  float* masters = model->masters();
  uint32_t state = 1;
  for (int64_t i = 0; i < model->table().arena_size(); ++i) {
    state = state * 1664525U + 1013904223U;
    masters[i] = (static_cast<float>(state >> 8) * 0x1p-24F - 0.5F) * 0.07F;
  }
  for (const model::Parameter& p : model->table().by_name())
    if (p.name.find("norm") != std::string::npos) std::fill_n(masters + p.offset, p.size, 1.0F);
}

std::string digest(const std::vector<rollout::Completion>& completions) {
  std::string bytes;
  for (const rollout::Completion& c : completions) {
    bytes.append(reinterpret_cast<const char*>(c.tokens.data()), c.tokens.size() * sizeof(int32_t));
    bytes.append(reinterpret_cast<const char*>(c.log_probs.data()), c.log_probs.size() * sizeof(float));
  }
  return sha256_hex(bytes).substr(0, 12);
}

struct Cases {
  std::vector<bool> graphs = {true, false};
  std::vector<int64_t> steps = {1, 4, 8, 16};
  std::vector<int64_t> sequences = {1, 32, 256};
};

int run(int rounds, int64_t new_tokens, const Cases& cases) {
  const cpu::Context context(1, cpu::isa_from_name("auto").value());
  for (const bool graphs : cases.graphs) {
    model::DeviceChoice choice;
    choice.device = "cuda";
    choice.graphs = graphs;
    Result<std::unique_ptr<model::Model>> made =
        model::make_model(model::Profile::kBf16, bench::qwen_half_billion(4096), choice);
    if (!made.ok()) {
      fmt::print("{}\n", made.status().message());
      return 1;
    }
    model::Model* model = made.value().get();
    fill(model);
    model->prepare(context, 4096);
    for (const int64_t steps : cases.steps) {
      for (const int64_t sequences : cases.sequences) {
        rollout::EngineConfig config;
        config.max_running_requests = 256;
        config.decode_steps = steps;
        rollout::Engine engine(*model, config);
        std::vector<rollout::Request> requests;
        for (int64_t i = 0; i < sequences; ++i) {
          rollout::Request r;
          for (int64_t t = 0; t < 100; ++t)
            r.prompt.push_back(static_cast<int32_t>((i / 8 * 7919 + t * 104729) % 151643));
          r.ordinal = static_cast<uint64_t>(i / 8);
          r.sample_index = static_cast<uint32_t>(i % 8);
          requests.push_back(r);
        }
        rollout::GenerationSettings settings;
        settings.sampling.max_new_tokens = new_tokens;
        settings.sampleable = 151643;
        std::vector<double> seconds;
        std::string bits;
        for (int round = 0; round < rounds + 1; ++round) {
          const auto start = Clock::now();
          const auto done = engine.generate(context, requests, settings);
          if (!done.ok()) {
            fmt::print("{}\n", done.status().message());
            return 1;
          }
          if (round > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
          bits = digest(done.value());
        }
        std::sort(seconds.begin(), seconds.end());
        if (seconds.empty()) continue;
        fmt::print("graphs {} steps {:2} sequences {:3}: {:.3f} ms a token, {:.3f} s in all, {}\n",
                   graphs ? "on " : "off", steps, sequences,
                   1e3 * seconds[seconds.size() / 2] / static_cast<double>(new_tokens),
                   seconds[seconds.size() / 2], bits);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Cases cases;
  if (argc > 3 && std::atoi(argv[3]) > 0) cases.sequences = {std::atoi(argv[3])};
  if (argc > 4) cases.steps = {std::atoi(argv[4])};
  if (argc > 5) cases.graphs = {std::strcmp(argv[5], "on") == 0};
  return run(argc > 1 ? std::atoi(argv[1]) : 3, argc > 2 ? std::atoi(argv[2]) : 300, cases);
}
