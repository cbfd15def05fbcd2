// SPDX-License-Identifier: Apache-2.0
// lockstep generate: samples from a checkpoint.
#pragma once

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

// One JSON line a sample, to config.out or stdout.
Status run_generate(const GenerateConfig& config);

}  // namespace lockstep::loop
