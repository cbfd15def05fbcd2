// SPDX-License-Identifier: Apache-2.0
#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void check_failed(const char* file, int line, const char* expression, const std::string& message) {
  std::fprintf(stderr, "lockstep: internal error at %s:%d: check failed: %s%s%s\n", file, line, expression,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep
