// SPDX-License-Identifier: Apache-2.0
// argv to values. The command line wins over the --config file; an option twice on the command line is
// refused.
#pragma once

#include <string>
#include <vector>

#include "cli/option.h"
#include "cli/values.h"
#include "core/status.h"

namespace lockstep::cli {

struct Invocation {
  CommandSet command = 0;  // 0: none named
  bool help = false;       // --help, or `help COMMAND`
  bool version = false;
  std::string
      topic;  // with command 0 and help: "debug": its parts; "--markdown": the tables of docs/options.md
  Values values{0};
  std::vector<std::string> words;  // what is no option: verify A B
  std::vector<std::string> notes;  // one line each, for stderr: options without effect here
};

// `words` are the arguments without the program's name. Reads the --config file. Errors are kInvalid; *prefix
// becomes "lockstep train" or "lockstep" for the error line.
Result<Invocation> parse_command_line(const std::vector<std::string>& words, std::string* prefix);

}  // namespace lockstep::cli
