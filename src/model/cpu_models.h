// SPDX-License-Identifier: Apache-2.0
// The profiles on the CPU; make_model and memory_needs choose.
#pragma once

#include <memory>

#include "model/model.h"

namespace lockstep::model {

std::unique_ptr<Model> make_fp32_model(const ModelConfig& config);
std::unique_ptr<Model> make_bf16_model(const ModelConfig& config);
MemoryNeeds fp32_memory_needs(const cpu::Context& context, const ModelConfig& config, int64_t rows,
                              int64_t loss_rows, bool recompute);
MemoryNeeds bf16_memory_needs(const ModelConfig& config, int64_t rows, int64_t loss_rows, bool recompute);

}  // namespace lockstep::model
