// SPDX-License-Identifier: Apache-2.0
// --dry-run: a resolved configuration as TOML that --config reads back to the same configuration.
#pragma once

#include <string>

#include "loop/config.h"

namespace lockstep::cli {

std::string describe(const loop::TrainConfig& config);
std::string describe(const loop::SftConfig& config);
std::string describe(const loop::EvalCommandConfig& config);
std::string describe(const loop::GenerateConfig& config);

}  // namespace lockstep::cli
