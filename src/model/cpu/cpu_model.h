// SPDX-License-Identifier: Apache-2.0
// The profiles on the CPU; make_model and memory_needs choose.
#pragma once

#include <memory>

#include "model/model.h"

namespace lockstep::model {

std::unique_ptr<Model> make_cpu_model(Profile profile, const ModelConfig& config);
MemoryNeeds cpu_memory_needs(const cpu::Context& context, Profile profile, const ModelConfig& config,
                             int64_t rows, int64_t loss_rows, bool recompute);

}  // namespace lockstep::model
