// SPDX-License-Identifier: Apache-2.0
// The products that both benchmark programs time, and how they time them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace lockstep::bench {

struct Shape {
  const char* name;
  int64_t n, k;  // W [n, k] of Qwen2.5-0.5B
};
inline constexpr Shape kShapes[] = {
    {"qkv", 1152, 896}, {"o", 896, 896}, {"gate_up", 9728, 896}, {"down", 896, 4864}, {"vocab", 151936, 896}};

struct Case {
  std::string op;  // forward, dx, dw
  Shape shape;
  int64_t m;
};

// "forward:qkv:256". Exits on a mistake: a benchmark has no caller to tell.
inline Case parse_case(const std::string& text) {
  const size_t first = text.find(':');
  const size_t second = text.find(':', first + 1);
  if (first != std::string::npos && second != std::string::npos) {
    const std::string op = text.substr(0, first);
    const std::string name = text.substr(first + 1, second - first - 1);
    const int64_t m = std::atoll(text.c_str() + second + 1);
    for (const Shape& shape : kShapes) {
      if (name == shape.name && m > 0 && (op == "forward" || op == "dx" || op == "dw")) return {op, shape, m};
    }
  }
  std::fprintf(stderr, "%s: not op:shape:m with op forward|dx|dw, shape qkv|o|gate_up|down|vocab\n",
               text.c_str());
  std::exit(2);
}

struct Options {
  int threads = 1;
  double seconds = 0.1;  // a case, at least
  std::vector<Case> cases;
};
inline Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--threads" && i + 1 < argc) {
      options.threads = std::atoi(argv[++i]);
    } else if (argument == "--seconds" && i + 1 < argc) {
      options.seconds = std::atof(argv[++i]);
    } else {
      options.cases.push_back(parse_case(argument));
    }
  }
  return options;
}

// So many copies of a matrix are used in turn that none stays in the cache between two calls, as in a model.
inline int64_t copies_of(int64_t bytes) {
  constexpr int64_t kFarMoreThanCache = int64_t{128} << 20;
  return std::clamp<int64_t>(kFarMoreThanCache / bytes, 1, 64);
}

inline void fill_random(float* out, int64_t count, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    out[i] = (static_cast<float>(state >> 40) * 0x1p-24F - 0.5F) * 0.1F;
  }
}

struct Timing {
  double median_seconds;
  double best_seconds;
  double median_cpu_seconds;  // of the whole process: free of other programs' share, for one thread
  int64_t repeats;
};

inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline double median_of(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<int64_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

// Times call(i), the i-th call: at least 3 after one that warms up.
template <class Call>
Timing time_calls(double at_least, const Call& call) {
  using Clock = std::chrono::steady_clock;
  call(0);
  std::vector<double> wall;
  std::vector<double> cpu;
  double total = 0;
  while (wall.size() < 3 || total < at_least) {
    const double cpu_start = cpu_seconds();
    const Clock::time_point start = Clock::now();
    call(static_cast<int64_t>(wall.size()) + 1);
    wall.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    cpu.push_back(cpu_seconds() - cpu_start);
    total += wall.back();
  }
  const double best = *std::min_element(wall.begin(), wall.end());
  return {median_of(&wall), best, median_of(&cpu), static_cast<int64_t>(wall.size())};
}

inline void print_result(const char* program, const char* kernel, const Case& c, const char* how, int threads,
                         const Timing& timing) {
  const double flops = 2.0 * static_cast<double>(c.m) * static_cast<double>(c.shape.n * c.shape.k);
  std::printf(
      "{\"program\":\"%s\",\"kernel\":\"%s\",\"op\":\"%s\",\"shape\":\"%s\",\"m\":%lld,\"how\":\"%s\","
      "\"threads\":%d,\"seconds\":%.9f,\"best_seconds\":%.9f,\"cpu_seconds\":%.9f,\"gflops\":%.3f,"
      "\"repeats\":%lld}\n",
      program, kernel, c.op.c_str(), c.shape.name, static_cast<long long>(c.m), how, threads,
      timing.median_seconds, timing.best_seconds, timing.median_cpu_seconds,
      flops / timing.median_seconds * 1e-9, static_cast<long long>(timing.repeats));
  std::fflush(stdout);
}

}  // namespace lockstep::bench
