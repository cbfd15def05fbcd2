// SPDX-License-Identifier: Apache-2.0
// lockstep train: the RL loop.
#pragma once

#include <string>

#include "core/status.h"
#include "loop/config.h"

namespace lockstep::loop {

Status run_train(const TrainConfig& config);

}  // namespace lockstep::loop
