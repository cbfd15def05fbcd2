// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/commands.h"

namespace lockstep::cli {

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status flush_output() {
  std::cout.flush();
  const bool failed = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed && std::cout) return ok_status();
  // A reader that has seen enough (`| head`) is told nothing more.
  if (errno == EPIPE) return {StatusCode::kStopped, ""};
  return stopped("standard output: {}", errno != 0 ? std::strerror(errno) : "a write failed");
}

}  // namespace lockstep::cli
