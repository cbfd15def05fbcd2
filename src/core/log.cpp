// SPDX-License-Identifier: Apache-2.0
#include "core/log.h"

#include <cstdio>

namespace lockstep {

void log_line(const std::string& line) {
  const std::string text = line + "\n";  // one write a line, so that threads and processes do not mix
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void log_warning(const std::string& text) {
  log_line("lockstep: warning: " + text);
}

}  // namespace lockstep
