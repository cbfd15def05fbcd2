// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/commands.h"

namespace lockstep::cli {
namespace {

// errno of the first write that failed; stdio keeps only that there was one.
int first_error = 0;

void note_error() {
  if (first_error == 0) first_error = errno != 0 ? errno : EIO;
}

}  // namespace

void print(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) note_error();
}

Status flush_output() {
  errno = 0;
  std::cout.flush();
  if (!std::cout) note_error();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) note_error();
  if (first_error == 0) return ok_status();
  // A reader that has seen enough (`| head`) is told nothing more.
  if (first_error == EPIPE) return {StatusCode::kStopped, ""};
  return stopped("standard output: {}", std::strerror(first_error));
}

}  // namespace lockstep::cli
