// SPDX-License-Identifier: Apache-2.0
// How much memory this process could have.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Bytes of memory and swap of the machine, or of the control group where that is less; 0 where it is not
// known.
int64_t machine_memory();
// From the texts of /proc/meminfo and of a control group's memory.max and memory.swap.max ("" where there is
// none).
int64_t machine_memory_of(const std::string& meminfo, const std::string& group_memory,
                          const std::string& group_swap);

}  // namespace lockstep
