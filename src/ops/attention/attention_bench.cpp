// SPDX-License-Identifier: Apache-2.0
// GFMA/s counts multiply-adds of visible (query, key) pairs only: two chains of head_size forward, five
// backward. Compare with the machine's peak in the bench of products.
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "ops/attention/attention.h"

namespace lockstep::ops {
namespace {

constexpr AttentionShape kQwen{14, 2, 64};  // Qwen2.5-0.5B

std::vector<float> numbers(int64_t n) {
  std::vector<float> x(n);
  uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  }
  return x;
}

cpu::Isa isa_of(int64_t i) {
  return i == 0 ? cpu::Isa::kScalar : i == 1 ? cpu::Isa::kAvx2 : cpu::Isa::kAvx512;
}

struct Sequences {
  int64_t length, ld;
  std::vector<float> qkv;
  std::vector<std::vector<float>> memory;
  std::vector<std::vector<float*>> k, v;

  Sequences(const AttentionShape& shape, int64_t count, int64_t n)
      : length(n), ld((shape.heads + 2 * shape.kv_heads) * shape.head_size), qkv(numbers(count * n * ld)) {
    for (int64_t s = 0; s < count; ++s) {
      k.emplace_back();
      v.emplace_back();
      for (int64_t block = 0; block * 64 < n; ++block) {
        for (auto* list : {&k, &v}) {
          memory.emplace_back(kv_block_floats(shape), 0.0F);
          list->back().push_back(memory.back().data());
        }
      }
      const float* keys = qkv.data() + s * n * ld + shape.heads * shape.head_size;
      write_kv_blocks(shape, keys, keys + shape.kv_heads * shape.head_size, ld, n, 0, k.back().data(),
                      v.back().data());
    }
  }
};

void count(benchmark::State& state, double fma) {
  state.counters["GFMA/s"] =
      benchmark::Counter(fma * static_cast<double>(state.iterations()) * 1e-9, benchmark::Counter::kIsRate);
}

// Whole sequences. range: isa, threads, sequences, length.
void BM_Forward(benchmark::State& state) {
  if (!cpu::isa_available(isa_of(state.range(0)))) return state.SkipWithError("not on this machine");
  const cpu::Context context(static_cast<int>(state.range(1)), isa_of(state.range(0)));
  const int64_t n = state.range(3);
  const Sequences s(kQwen, state.range(2), n);
  std::vector<AttentionRun> runs;
  for (int64_t i = 0; i < state.range(2); ++i) runs.push_back({i * n, n, 0, s.k[i].data(), s.v[i].data()});
  std::vector<float> out(state.range(2) * n * 896);
  for (auto _ : state) {
    benchmark::DoNotOptimize(attention_forward_cpu(context, kQwen, s.qkv.data(), s.ld, runs.data(),
                                                   static_cast<int64_t>(runs.size()), out.data(), 896,
                                                   nullptr, nullptr));
  }
  count(state, 0.5 * static_cast<double>(n) * static_cast<double>(n + 1) * 14 * 64 * 2 *
                   static_cast<double>(state.range(2)));
}

// One new token a sequence, at position length - 1.
void BM_Decode(benchmark::State& state) {
  if (!cpu::isa_available(isa_of(state.range(0)))) return state.SkipWithError("not on this machine");
  const cpu::Context context(static_cast<int>(state.range(1)), isa_of(state.range(0)));
  const int64_t n = state.range(3);
  const Sequences s(kQwen, state.range(2), n);
  std::vector<AttentionRun> runs;
  for (int64_t i = 0; i < state.range(2); ++i) runs.push_back({i, 1, n - 1, s.k[i].data(), s.v[i].data()});
  std::vector<float> out(state.range(2) * 896);
  for (auto _ : state) {
    benchmark::DoNotOptimize(attention_forward_cpu(context, kQwen, s.qkv.data(), s.ld, runs.data(),
                                                   static_cast<int64_t>(runs.size()), out.data(), 896,
                                                   nullptr, nullptr));
  }
  count(state, static_cast<double>(n) * 14 * 64 * 2 * static_cast<double>(state.range(2)));
  state.counters["KV bytes/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(2) * n * 2 * 2 * 64 * 4),
                         benchmark::Counter::kIsRate);
}

void BM_Backward(benchmark::State& state) {
  if (!cpu::isa_available(isa_of(state.range(0)))) return state.SkipWithError("not on this machine");
  const cpu::Context context(static_cast<int>(state.range(1)), isa_of(state.range(0)));
  const int64_t n = state.range(3);
  const int64_t rows = state.range(2) * n;
  const Sequences s(kQwen, state.range(2), n);
  std::vector<AttentionRun> runs;
  std::vector<AttentionSample> samples;
  for (int64_t i = 0; i < state.range(2); ++i) {
    runs.push_back({i * n, n, 0, s.k[i].data(), s.v[i].data()});
    samples.push_back({i * n, (i + 1) * n});
  }
  std::vector<float> out(rows * 896);
  std::vector<float> max(rows * 14);
  std::vector<float> inverse(rows * 14);
  std::vector<float> d_qkv(rows * s.ld);
  const std::vector<float> d_out = numbers(rows * 896);
  if (!attention_forward_cpu(context, kQwen, s.qkv.data(), s.ld, runs.data(), state.range(2), out.data(), 896,
                             max.data(), inverse.data()))
    return state.SkipWithError("scores out of range");
  for (auto _ : state) {
    attention_backward_cpu(context, kQwen, s.qkv.data(), out.data(), d_out.data(), max.data(), inverse.data(),
                           samples.data(), state.range(2), d_qkv.data());
    benchmark::DoNotOptimize(d_qkv.data());
  }
  count(state, 0.5 * static_cast<double>(n) * static_cast<double>(n + 1) * 14 * 64 * 5 *
                   static_cast<double>(state.range(2)));
}

void cases(benchmark::internal::Benchmark* b) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  for (const int64_t isa : {0, 1, 2}) {
    for (const int64_t length : {128, 400, 1124}) b->Args({isa, 1, 8, length});
    b->Args({isa, cores, 8, 400});
  }
  b->ArgNames({"isa", "threads", "sequences", "length"})->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_Forward)->Apply(cases);
BENCHMARK(BM_Backward)->Apply(cases);
void decode_cases(benchmark::internal::Benchmark* b) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  for (const int64_t isa : {1, 2}) {
    for (const int64_t threads : {int64_t{1}, cores}) {
      b->Args({isa, threads, 16, 128});
      b->Args({isa, threads, 16, 1024});
      b->Args({isa, threads, 1, 4096});
    }
  }
  b->ArgNames({"isa", "threads", "sequences", "length"})->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_Decode)->Apply(decode_cases);

}  // namespace
}  // namespace lockstep::ops

BENCHMARK_MAIN();
