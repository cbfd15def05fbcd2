// SPDX-License-Identifier: Apache-2.0
// The rate of fused multiply-adds from registers: what no product can pass. fma_rate [threads [seconds]]
// prints one JSON line with the sum over threads.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int kRounds = 100000;

#if defined(__x86_64__)
constexpr int kChains = 12;  // covers latency 4 or 5 on two units
constexpr int kLanes = 8;
float burst(float seed) {
  __m256 acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_ps(seed + static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999F);
  const __m256 b = _mm256_set1_ps(1e-3F);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kChains; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = _mm256_add_ps(acc[0], acc[i]);
  return _mm256_cvtss_f32(acc[0]);
}
#else
constexpr int kChains = 16;
constexpr int kLanes = 4;
float burst(float seed) {
  float acc[kChains * kLanes];
  for (int i = 0; i < kChains * kLanes; ++i) acc[i] = seed + static_cast<float>(i);
  for (int round = 0; round < kRounds; ++round) {
    for (float& x : acc) x = std::fma(x, 0.999F, 1e-3F);
  }
  float sum = 0;
  for (const float x : acc) sum += x;
  return sum;
}
#endif

// The best burst of a thread, in GFLOP/s, and the median.
void measure(double seconds, double* best, double* total) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  volatile float sink = 1.0F;
  int64_t bursts = 0;
  double used = 0;
  while (used < seconds) {
    const Clock::time_point before = Clock::now();
    sink = burst(sink);
    const Clock::time_point after = Clock::now();
    const double rate =
        2.0 * kRounds * kChains * kLanes / std::chrono::duration<double>(after - before).count() * 1e-9;
    if (rate > *best) *best = rate;
    ++bursts;
    used = std::chrono::duration<double>(after - start).count();
  }
  *total = 2.0 * kRounds * kChains * kLanes * static_cast<double>(bursts) / used * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.2;
  std::vector<double> best(static_cast<size_t>(threads)), mean(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (size_t i = 1; i < best.size(); ++i) workers.emplace_back(measure, seconds, &best[i], &mean[i]);
  measure(seconds, best.data(), mean.data());
  for (std::thread& worker : workers) worker.join();
  double best_sum = 0;
  double mean_sum = 0;
  for (size_t i = 0; i < best.size(); ++i) {
    best_sum += best[i];
    mean_sum += mean[i];
  }
  std::printf("{\"threads\":%d,\"best_gflops\":%.2f,\"mean_gflops\":%.2f}\n", threads, best_sum, mean_sum);
  return 0;
}
