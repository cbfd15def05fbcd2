// SPDX-License-Identifier: Apache-2.0
// lockstep init: a random checkpoint from a config.json.
#pragma once

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

// Writes a Hugging Face folder with SHA256SUMS. Pure function of (config.json, tokenizer files, seed).
Status run_init(const InitConfig& config);

}  // namespace lockstep::loop
