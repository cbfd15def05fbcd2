// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/graph.h"

#include <cuda_runtime_api.h>

#include <atomic>

#include "device/cuda/error.h"

namespace lockstep::cuda {
namespace {

std::atomic<int64_t> recorded_count{0};

}  // namespace

int64_t graphs_recorded() {
  return recorded_count;
}

Graph::Graph(const Context& context, const std::string& what, const std::function<void()>& launches) {
  const std::string doing = "recording " + what + " as a CUDA graph (--cuda-graphs off does without)";
  check(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal), doing.c_str());
  cudaGraph_t graph = nullptr;
  try {
    launches();
  } catch (...) {
    (void)cudaStreamEndCapture(context.stream(), &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    throw;
  }
  cudaError_t code = cudaStreamEndCapture(context.stream(), &graph);
  if (code == cudaSuccess) code = cudaGraphInstantiate(&recorded_, graph, 0);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (code != cudaSuccess) (void)cudaGetLastError();
  check(code, doing.c_str());
  ++recorded_count;
}

Graph::~Graph() {
  if (recorded_ != nullptr) (void)cudaGraphExecDestroy(recorded_);
}

void Graph::launch(const Context& context) const {
  check(cudaGraphLaunch(recorded_, context.stream()), "launching a CUDA graph");
}

}  // namespace lockstep::cuda
