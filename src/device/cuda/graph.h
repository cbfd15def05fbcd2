// SPDX-License-Identifier: Apache-2.0
// Launches recorded once and replayed with one call (a CUDA graph).
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "device/cuda/context.h"

struct CUgraphExec_st;  // what a cudaGraphExec_t points to

namespace lockstep::cuda {

// Recordings made in this process; tests count them.
int64_t graphs_recorded();

class Graph {
 public:
  Graph() = default;
  // Records what `launches` puts on the context's stream; nothing runs. It may not allocate, wait or copy
  // from or to the host; pointers are recorded as they are. Throws Error, naming `what`, when the GPU refuses
  // the recording; the stream is as before then.
  Graph(const Context& context, const std::string& what, const std::function<void()>& launches);
  ~Graph();
  Graph(Graph&& other) noexcept : recorded_(std::exchange(other.recorded_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(recorded_, other.recorded_);
    return *this;
  }

  bool empty() const { return recorded_ == nullptr; }
  // Runs the launches on the stream, in their order.
  void launch(const Context& context) const;

 private:
  CUgraphExec_st* recorded_ = nullptr;
};

}  // namespace lockstep::cuda
