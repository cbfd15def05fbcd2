// SPDX-License-Identifier: Apache-2.0
// The GPU a model would compute on, and what it would take there: known before anything is allocated. The
// same functions in a program built without a CUDA toolkit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/config.h"
#include "model/model.h"

namespace lockstep::model {

struct GpuInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sms = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;       // now
  std::string driver, runtime;  // CUDA versions, like "13.0"
};

// Where a model of this profile and shape computes.
struct ChosenDevice {
  DeviceChoice choice;         // cpu or cuda
  std::optional<GpuInfo> gpu;  // of cuda
  std::string reason;          // one line for people; "" where the choice was theirs
};
// Errors (kInvalid): cuda, or with auto a GPU other than 0, was asked for and is not there or does not fit
// the profile or the shape.
Result<ChosenDevice> choose_device(Profile profile, const ModelConfig& config, const DeviceChoice& choice);

// A part of what a run takes.
struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
  bool fixed = false;  // by model and profile: no option of the machine makes it less
};

// What a run does on the GPU.
struct GpuWork {
  // Sampling.
  int64_t running = 0;    // samples decoded together; 0: no sampling
  int64_t step_rows = 0;  // most rows of one step: them, and prompts
  int64_t longest = 0;    // tokens of a sample
  int64_t keys = 0;       // most that a row attends to: of all that is sampled, where that is several things
  int64_t kv_pages = 0;   // of numerics::kKeyBlock tokens
  int64_t positions = 0;  // of the RoPE tables
  // Training.
  bool trains = false;
  int64_t rows = 0;         // of a micro-batch, with padding
  int64_t leaf_rows = 0;    // of the longest leaf, with padding
  bool cut_leaves = false;  // micro-batches cut leaves
  bool recompute = false;
  bool reference = false;  // a second model gives log-probs of the micro-batches
};
// In the order of a table. What the backend allocates comes from the same functions (cuda/sizes.h); the
// scratch memory of its operations and its small tables are bounds. The driver's own memory is not in it.
std::vector<MemoryPart> gpu_memory(Profile profile, const ModelConfig& config, const GpuWork& work);

int64_t memory_sum(const std::vector<MemoryPart>& parts);

// Whether the parts fit: kInvalid with the arithmetic and `remedy` if not.
Status check_gpu_memory(const GpuInfo& gpu, const std::vector<MemoryPart>& parts, const std::string& remedy);

}  // namespace lockstep::model
