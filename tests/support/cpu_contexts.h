// SPDX-License-Identifier: Apache-2.0
// Every CPU configuration an op must equal its reference under.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

#include "device/cpu/context.h"

namespace lockstep::testing {

// Calls body for threads 1, 2, 3, 7 and every instruction set of this machine. Says so when AVX-512 is left
// out.
inline void for_each_context(const std::function<void(const cpu::Context&)>& body) {
  for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (!cpu::isa_available(isa)) {
      static bool said = false;
      if (!said) std::printf("[ note     ] %s: not on this machine, not tested here\n", cpu::isa_name(isa));
      said = true;
      continue;
    }
    for (const int threads : {1, 2, 3, 7}) {
      SCOPED_TRACE(std::string(cpu::isa_name(isa)) + ", " + std::to_string(threads) + " threads");
      const cpu::Context context(threads, isa);
      body(context);
    }
  }
}

}  // namespace lockstep::testing
