// SPDX-License-Identifier: Apache-2.0
#include "loop/machine.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace lockstep::loop {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

Result<std::unique_ptr<cpu::Context>> make_context(const MachineConfig& machine) {
  LOCKSTEP_ASSIGN_OR_RETURN(const cpu::Isa isa, cpu::isa_from_name(machine.isa));
  return std::make_unique<cpu::Context>(machine.threads > 0 ? machine.threads : usable_cores(), isa);
}

}  // namespace lockstep::loop
