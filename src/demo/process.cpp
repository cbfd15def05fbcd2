// SPDX-License-Identifier: Apache-2.0
#include "demo/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "core/file.h"

extern char** environ;

namespace lockstep::demo {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(3);

Ending ending_of(int wait_status) {
  Ending ending;
  if (WIFEXITED(wait_status)) ending.exit_code = WEXITSTATUS(wait_status);
  if (WIFSIGNALED(wait_status)) ending.signal = WTERMSIG(wait_status);
  return ending;
}

int wait_without_interruption(pid_t pid, int* wait_status, int options) {
  pid_t done = 0;
  do {
    done = waitpid(pid, wait_status, options);
  } while (done < 0 && errno == EINTR);
  return done;
}

}  // namespace

std::string Ending::text() const {
  return signal != 0 ? fmt::format("signal {}", signal) : fmt::format("exit code {}", exit_code);
}

Result<Process> Process::start(const std::string& program, const std::vector<std::string>& arguments,
                               const std::string& log_path) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return stopped("{}: {}", log_path, std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(log);
  if (error != 0) return stopped("cannot start {}: {}", program, std::strerror(error));
  return Process(pid);
}

Process::~Process() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  wait();
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Ending Process::wait() {
  int wait_status = 0;
  const int done = wait_without_interruption(pid_, &wait_status, 0);
  pid_ = -1;
  return done < 0 ? Ending{} : ending_of(wait_status);
}

Ending Process::kill_when(const std::function<bool()>& due) {
  for (;;) {
    int wait_status = 0;
    const int done = wait_without_interruption(pid_, &wait_status, WNOHANG);
    if (done != 0) {
      pid_ = -1;
      return done < 0 ? Ending{} : ending_of(wait_status);
    }
    if (due()) {
      kill(pid_, SIGKILL);
      return wait();
    }
    std::this_thread::sleep_for(kPoll);
  }
}

std::string last_lines(const std::string& path, int lines) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return "";
  size_t at = text.value().size();
  if (at > 0 && text.value()[at - 1] == '\n') --at;
  for (int left = lines; at > 0; --at) {
    if (text.value()[at - 1] == '\n' && --left == 0) break;
  }
  return text.value().substr(at);
}

}  // namespace lockstep::demo
