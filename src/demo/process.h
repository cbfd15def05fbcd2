// SPDX-License-Identifier: Apache-2.0
// Programs run as processes of their own, output in a log file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/status.h"

namespace lockstep::demo {

// How a process ended.
struct Ending {
  int exit_code = -1;  // -1: by a signal
  int signal = 0;
  bool ok() const { return exit_code == 0; }
  std::string text() const;  // "exit code 2", "signal 9"
};

// One running process; killed and reaped when the object goes away.
class Process {
 public:
  // Standard output and error are appended to `log_path`; standard input is empty. Errors: the log cannot be
  // opened, the program cannot be started.
  static Result<Process> start(const std::string& program, const std::vector<std::string>& arguments,
                               const std::string& log_path);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Ending wait();
  // SIGKILL as soon as `due` says so (asked every few milliseconds), then waits. The process may have ended
  // by itself before: the Ending tells.
  Ending kill_when(const std::function<bool()>& due);

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;  // -1: reaped
};

// The last `lines` lines of a text file; "" when it cannot be read.
std::string last_lines(const std::string& path, int lines);

}  // namespace lockstep::demo
