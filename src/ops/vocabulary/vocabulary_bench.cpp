// SPDX-License-Identifier: Apache-2.0
// Bytes are those of the logits read (and written, for the gradient).
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "ops/vocabulary/vocabulary.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kVocab = 151936;

std::vector<float> numbers(int64_t n, float scale) {
  std::vector<float> x(n);
  uint64_t state = 1;
  for (float& v : x) {
    v = -2.0F;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      v += static_cast<float>(state >> 40) * 0x1p-24F;
    }
    v *= scale;
  }
  return x;
}

cpu::Isa isa_of(int64_t i) {
  return i == 0 ? cpu::Isa::kScalar : i == 1 ? cpu::Isa::kAvx2 : cpu::Isa::kAvx512;
}

// range: isa, threads, rows.
void BM_Sums(benchmark::State& state) {
  if (!cpu::isa_available(isa_of(state.range(0)))) return state.SkipWithError("not on this machine");
  const cpu::Context context(static_cast<int>(state.range(1)), isa_of(state.range(0)));
  const int64_t rows = state.range(2);
  const std::vector<float> logits = numbers(rows * kVocab, 4.0F);
  std::vector<VocabularySums> sums(rows);
  for (auto _ : state) {
    vocabulary_sums_cpu(context, logits.data(), kVocab, rows, kVocab, vocabulary_scale(1.0), sums.data());
    benchmark::DoNotOptimize(sums.data());
  }
  state.SetBytesProcessed(state.iterations() * rows * kVocab * 4);
}

void BM_Gradient(benchmark::State& state) {
  if (!cpu::isa_available(isa_of(state.range(0)))) return state.SkipWithError("not on this machine");
  const cpu::Context context(static_cast<int>(state.range(1)), isa_of(state.range(0)));
  const int64_t rows = state.range(2);
  std::vector<float> logits = numbers(rows * kVocab, 4.0F);
  std::vector<VocabularySums> sums(rows);
  vocabulary_sums_cpu(context, logits.data(), kVocab, rows, kVocab, vocabulary_scale(1.0), sums.data());
  const std::vector<VocabularyGradientRow> grads(rows, {5, 1.0F, 0.0F});
  for (auto _ : state) {  // the second pass finds gradients where logits were: the same work
    vocabulary_gradient_cpu(context, logits.data(), kVocab, rows, kVocab, vocabulary_scale(1.0), 1.0F,
                            sums.data(), grads.data());
    benchmark::DoNotOptimize(logits.data());
  }
  state.SetBytesProcessed(state.iterations() * rows * kVocab * 8);
}

void cases(benchmark::internal::Benchmark* b) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  for (const int64_t isa : {0, 1, 2}) {
    b->Args({isa, 1, 16});
    b->Args({isa, cores, 16});
  }
  b->ArgNames({"isa", "threads", "rows"})->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_Sums)->Apply(cases);
BENCHMARK(BM_Gradient)->Apply(cases);

// One row. range: top_k, top_p in percent, temperature in percent, spread of the logits.
void BM_Sample(benchmark::State& state) {
  const std::vector<float> logits = numbers(kVocab, static_cast<float>(state.range(3)));
  const SamplingSettings settings{static_cast<double>(state.range(2)) / 100,
                                  static_cast<double>(state.range(1)) / 100, state.range(0), 151665};
  VocabularySums sums;
  vocabulary_sums_ref(logits.data(), kVocab, 1, kVocab, vocabulary_scale(settings.temperature), &sums);
  uint64_t bits = 1;
  for (auto _ : state) {
    bits = bits * 6364136223846793005ULL + 1442695040888963407ULL;
    benchmark::DoNotOptimize(sample_token_cpu(logits.data(), kVocab, settings, sums, bits));
  }
}
BENCHMARK(BM_Sample)
    ->ArgNames({"top_k", "top_p%", "T%", "spread"})
    ->Args({-1, 100, 100, 4})
    ->Args({-1, 100, 0, 4})
    ->Args({50, 100, 100, 4})
    ->Args({-1, 90, 100, 4})
    ->Args({-1, 90, 100, 20})
    ->Args({50, 95, 70, 4})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
