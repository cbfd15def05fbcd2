// SPDX-License-Identifier: Apache-2.0
// lockstep COMMAND ...: the only place that reads argv, prints the error line and chooses the exit code.
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/values.h"
#include "core/device_error.h"
#include "core/log.h"
#include "device/cpu/isa.h"

namespace lockstep::cli {
namespace {

Status dispatch(const Invocation& invocation, const std::string& program) {
  switch (invocation.command) {
    case kTrain:
      return command_train(invocation);
    case kSft:
      return command_sft(invocation);
    case kEval:
      return command_eval(invocation);
    case kGenerate:
      return command_generate(invocation);
    case kInit:
      return command_init(invocation);
    case kVerify:
      return command_verify(invocation);
    case kInspect:
      return command_inspect(invocation);
    case kDemo:
      return command_demo(invocation, program);
    default:
      return command_debug(invocation);
  }
}

std::string help_text(const Invocation& invocation) {
  if (invocation.command != 0) return command_help(invocation.command);
  if (invocation.topic == "--markdown") return options_markdown();
  return invocation.topic == "debug" ? debug_overview() : overview();
}

Status run(const std::vector<std::string>& words, const std::string& program, std::string* prefix) {
  LOCKSTEP_RETURN_IF_ERROR(cpu::check_machine());
  LOCKSTEP_ASSIGN_OR_RETURN(const Invocation invocation, parse_command_line(words, prefix));
  if (invocation.version || invocation.help) {
    print(invocation.version ? version_text() : help_text(invocation));
    return flush_output();
  }
  for (const std::string& note : invocation.notes) log_info("{}: note: {}", *prefix, note);
  const Status status = dispatch(invocation, program);
  const Status written = flush_output();
  return status.ok() ? written : status;
}

// One line of UTF-8, whatever stands in the names and values it quotes.
std::string one_line(const std::string& message) {
  const bool utf8 = is_utf8(message);
  std::string out;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 && !utf8) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += byte < 0x20 || byte == 0x7f ? ' ' : c;
    }
  }
  return out;
}

int guarded(const std::vector<std::string>& words, const std::string& program) {
  std::string prefix = "lockstep";
  Status status;
  try {
    status = run(words, program, &prefix);
  } catch (const std::bad_alloc&) {
    status = stopped("{}", out_of_memory_text(prefix));
  } catch (const DeviceError& error) {
    status = stopped("{}", device_error_text(prefix, error));
  } catch (const std::exception& error) {
    status = stopped("a bug: {}", error.what());
  }
  if (!status.ok() && !status.message().empty()) log_line(one_line(prefix + ": " + status.message()));
  return static_cast<int>(status.code());
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  // A reader that goes away must not end a run; a failed write is reported where it happens.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files, too
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return lockstep::cli::guarded(words, argc > 0 ? argv[0] : "lockstep");
}
