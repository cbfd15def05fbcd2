// SPDX-License-Identifier: Apache-2.0
// The CPU context a command asked for.
#pragma once

#include <memory>

#include "core/status.h"
#include "device/cpu/context.h"
#include "loop/config.h"

namespace lockstep::loop {

// threads 0: all cores this process may use. Errors: unknown instruction set or one this processor lacks.
Result<std::unique_ptr<cpu::Context>> make_context(const MachineConfig& machine);

}  // namespace lockstep::loop
