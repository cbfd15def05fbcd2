// SPDX-License-Identifier: Apache-2.0
// lockstep sft: supervised warm-up on prompts with their answers.
#pragma once

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

Status run_sft(const SftConfig& config);

}  // namespace lockstep::loop
