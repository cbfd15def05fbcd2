// SPDX-License-Identifier: Apache-2.0
// Recorded decode steps, by what their launches depend on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "device/cuda/graph.h"
#include "ops/vocabulary/vocabulary_types.h"

namespace lockstep::model {

class DecodeGraphs {
 public:
  struct Key {
    int64_t rows = 0;
    int64_t pages = 0;
    ops::SamplingSettings sampling;
    bool operator<(const Key& other) const { return order() < other.order(); }

   private:
    std::tuple<int64_t, int64_t, double, double, int64_t, int64_t> order() const {
      return {rows, pages, sampling.temperature, sampling.top_p, sampling.top_k, sampling.sampleable};
    }
  };

  // Runs `launches`. The first time of a key as they are, which allocates what they need; then recorded, and
  // replayed from there on, while `memory`, the addresses that they hold, stays the same.
  void run(const cuda::Context& context, const Key& key,
           const std::function<std::vector<const void*>()>& memory, const std::function<void()>& launches) {
    const auto found = known_.find(key);
    if (found == known_.end() || memory() != memory_) {
      launches();
      std::vector<const void*> now = memory();
      if (now != memory_ || known_.size() >= kMost) known_.clear();
      memory_ = std::move(now);
      known_[key];
      return;
    }
    cuda::Graph& graph = found->second;
    if (graph.empty()) graph = cuda::Graph(context, "a decode step", launches);
    graph.launch(context);
  }

 private:
  static constexpr size_t kMost = 64;  // a graph of 300 launches takes about a megabyte of host memory

  std::vector<const void*> memory_;
  std::map<Key, cuda::Graph> known_;
};

}  // namespace lockstep::model
