// SPDX-License-Identifier: Apache-2.0
// Which instruction set the CPU kernels use. Changes speed, never a bit.
#pragma once

#include <string>

#include "core/status.h"

namespace lockstep::cpu {

enum class Isa { kScalar, kAvx2, kAvx512 };

// "auto" (the widest this machine has), "scalar", "avx2", "avx512". Errors: unknown name; not on this
// machine.
Result<Isa> isa_from_name(const std::string& name);
const char* isa_name(Isa isa);
bool isa_available(Isa isa);
// What the program needs at all (x86-64-v3 on x86). Errors name the missing feature.
Status check_machine();

}  // namespace lockstep::cpu
