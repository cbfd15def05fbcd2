// SPDX-License-Identifier: Apache-2.0
// The built program as a child process.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"

namespace lockstep::testing {

using Arguments = std::vector<std::string>;

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

// Starts LOCKSTEP_PROGRAM with both outputs in files `log`.out and `log`.err.
inline pid_t start_program(const Arguments& arguments, const std::string& log) {
  std::vector<char*> argv;
  static const std::string program = LOCKSTEP_PROGRAM;
  argv.push_back(const_cast<char*>(program.c_str()));
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  // make test-gpu runs the whole-run tests with LOCKSTEP_TEST_DEVICE=cuda: the same golden files.
  static const std::string option = "--device";
  static const char* device = std::getenv("LOCKSTEP_TEST_DEVICE");
  const bool computes = !arguments.empty() && (arguments[0] == "train" || arguments[0] == "sft" ||
                                               arguments[0] == "eval" || arguments[0] == "generate");
  if (device != nullptr && computes) {
    argv.push_back(const_cast<char*>(option.c_str()));
    argv.push_back(const_cast<char*>(device));
  }
  argv.push_back(nullptr);
  const std::string out = log + ".out";
  const std::string err = log + ".err";
  const pid_t pid = ::fork();
  LOCKSTEP_CHECK(pid >= 0);
  if (pid == 0) {
    const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out_fd, STDOUT_FILENO);
    ::dup2(err_fd, STDERR_FILENO);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  return pid;
}

inline ProgramResult finish_program(pid_t pid, const std::string& log) {
  int status = 0;
  LOCKSTEP_CHECK(::waitpid(pid, &status, 0) == pid);
  ProgramResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.out = read_file(log + ".out").value();
  result.err = read_file(log + ".err").value();
  return result;
}

inline ProgramResult run_program(const Arguments& arguments, const std::string& log) {
  return finish_program(start_program(arguments, log), log);
}

}  // namespace lockstep::testing
