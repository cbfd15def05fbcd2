// SPDX-License-Identifier: Apache-2.0
// What a run will take, counted before it starts.
#pragma once

#include <string>

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

// One line a part and the sum, for --dry-run. Reads config.json and, for the prompt length, the data file.
Result<std::string> train_memory_text(const TrainConfig& config);

}  // namespace lockstep::loop
