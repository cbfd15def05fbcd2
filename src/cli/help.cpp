// SPDX-License-Identifier: Apache-2.0
#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/values.h"
#include "numerics/constants.h"

namespace lockstep::cli {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kHelpColumn = 34;
constexpr const char* kVersion = "0.1.0";  // of the project in CMakeLists.txt (help_test.cpp)

// `text` broken into lines at spaces; the first line begins at column `at`, the others at `indent`.
std::string wrapped(std::string_view text, size_t indent, size_t at) {
  std::string out;
  size_t column = at;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    begin = end + 1;
  }
  return out + "\n";
}

std::string shape_of(const Option& option) {
  std::string shape = "--" + option.name;
  if (option.kind == Kind::kFlag) return shape;
  return shape + " " + option.value;
}

std::string default_text(const Option& option) {
  if (option.required) return " (required)";
  if (option.kind == Kind::kFlag) return option.fallback == "true" ? " (default: on)" : "";
  return option.fallback.empty() ? "" : " (default " + option.fallback + ")";
}

bool belongs(const Option& option, CommandSet command, Group group) {
  return (option.commands & command) != 0 && option.group == group;
}

bool does_something(const Option& option) {
  return option.role == Role::kIdentity || option.role == Role::kPath || option.role == Role::kFree;
}

std::string option_lines(const Option& option) {
  std::string line = "  " + shape_of(option);
  if (line.size() + 2 > kHelpColumn) {
    line += "\n" + std::string(kHelpColumn, ' ');
  } else {
    line.resize(kHelpColumn, ' ');
  }
  return line + wrapped(option.help + default_text(option), kHelpColumn, kHelpColumn);
}

std::string names_with_role(CommandSet command, Role role) {
  std::string names;
  for (const Option& option : all_options()) {
    if ((option.commands & command) == 0 || option.role != role) continue;
    names += (names.empty() ? "" : " ") + ("--" + option.name) +
             (role == Role::kFixed && option.kind != Kind::kFlag ? "=" + option.target : "");
  }
  return names;
}

std::string foreign_section(CommandSet command) {
  struct Section {
    Role role;
    const char* title;
  };
  const Section sections[] = {
      {Role::kStated, "Compared with config.json, so that a script for another model is refused"},
      {Role::kFixed, "Taken with this value only"},
      {Role::kIgnored, "Taken from launch scripts, without effect here (a line says why)"},
      {Role::kRefused, "Known, and refused"},
  };
  std::string out;
  for (const Section& section : sections) {
    const std::string names = names_with_role(command, section.role);
    if (!names.empty()) out += fmt::format("\n{}\n  {}", section.title, wrapped(names, 2, 2));
  }
  return out;
}

std::string commands_table(bool debug) {
  std::string out;
  for (const Command& command : all_commands()) {
    const bool part = std::string_view(command.name).substr(0, 6) == "debug ";
    if (part == debug) out += fmt::format("  {:<16} {}\n", command.name, command.summary);
  }
  if (!debug) out += fmt::format("  {:<16} {}\n", "debug", "one part at a time, for checking");
  return out;
}

std::string cell(std::string text) {
  size_t at = 0;
  while ((at = text.find('|', at)) != std::string::npos) {
    text.replace(at, 1, "\\|");
    at += 2;
  }
  return text;
}

std::string command_names(CommandSet commands) {
  std::string names;
  for (const Command& command : all_commands()) {
    if ((command.bit & commands) != 0) names += (names.empty() ? "" : ", ") + std::string(command.name);
  }
  return names;
}

// Options that say what a command takes, "" for one that has none.
std::string memory_options(std::string_view prefix) {
  const std::string dry_run = " (--dry-run prints what it takes)";
  if (prefix == "lockstep train") return "--max-tokens-per-gpu or --max-running-requests" + dry_run;
  if (prefix == "lockstep sft") return "--max-tokens-per-gpu" + dry_run;
  if (prefix == "lockstep eval" || prefix == "lockstep generate")
    return "--max-running-requests or --max-total-tokens" + dry_run;
  return "";
}

}  // namespace

std::string version_text() {
  return fmt::format("lockstep {} (numerics version {}, profiles fp32 and bf16)\n", kVersion,
                     numerics::kNumericsVersion);
}

std::string out_of_memory_text(std::string_view prefix) {
  const std::string options = memory_options(prefix);
  if (!options.empty()) return "out of memory; lower " + options;
  if (prefix == "lockstep init")
    return "out of memory; --model-config describes a model too large for this machine";
  return "out of memory; close other programs or use a larger machine";
}

std::string device_error_text(std::string_view prefix, const DeviceError& error) {
  const std::string options = memory_options(prefix);
  std::string remedy = "the GPU or its driver failed; start again, on another GPU if it fails again";
  if (error.out_of_memory()) {
    remedy = options.empty() ? std::string("end other programs on the GPU or use a larger one")
                             : "end other programs on the GPU, or lower " + options;
  }
  if (prefix == "lockstep train" || prefix == "lockstep sft")
    remedy += "; the run goes on from its last checkpoint";
  return std::string(error.what()) + "; " + remedy;
}

std::string overview() {
  return "Reinforcement-learning post-training whose runs are pure functions of their inputs.\n\n" +
         fmt::format("usage: lockstep COMMAND [options]\n\n{}", commands_table(false)) +
         "\n`lockstep COMMAND --help` says more. `lockstep demo` shows the whole story in three minutes.\n"
         "Exit codes: 0 done; 1 done, and the answer is no; 2 usage, configuration or input; 3 not "
         "comparable;\n"
         "4 a run stopped by its own check or a failed write.\n";
}

std::string debug_overview() {
  return fmt::format("usage: lockstep debug PART [options]\n\n{}\n`lockstep debug PART --help` says more.\n",
                     commands_table(true));
}

std::string command_help(CommandSet bit) {
  const Command& command = command_of(bit);
  std::string out = fmt::format("lockstep {}: {}\n\nusage: lockstep {} {}\n\n{}", command.name,
                                command.summary, command.name, command.usage, wrapped(command.text, 0, 0));
  const Group groups[] = {Group::kCommand,  Group::kModel, Group::kData, Group::kRollout, Group::kReward,
                          Group::kTraining, Group::kEval,  Group::kRun,  Group::kMachine};
  for (const Group group : groups) {
    std::string lines;
    for (const Option& option : all_options()) {
      if (belongs(option, bit, group) && does_something(option)) lines += option_lines(option);
    }
    if (!lines.empty()) out += fmt::format("\n{}\n{}", group_title(group), lines);
  }
  return out + foreign_section(bit);
}

std::string options_markdown() {
  std::string out;
  const Group groups[] = {Group::kModel, Group::kData, Group::kRollout, Group::kReward, Group::kTraining,
                          Group::kEval,  Group::kRun,  Group::kMachine, Group::kCommand};
  for (const Group group : groups) {
    out += fmt::format("### {}\n\n| option | default | commands | meaning |\n|---|---|---|---|\n",
                       group_title(group));
    for (const Option& option : all_options()) {
      if (option.group != group || !does_something(option)) continue;
      const std::string fallback = option.required              ? "required"
                                   : option.kind != Kind::kFlag ? option.fallback
                                   : option.fallback == "true"  ? "on"
                                                                : "off";
      const bool number = option.kind == Kind::kInt || option.kind == Kind::kReal;
      out += fmt::format("| `{}` | {} | {} | {}{} |\n", cell(shape_of(option)), cell(fallback),
                         option.commands == kEveryCommand ? "all" : command_names(option.commands),
                         cell(option.help), number ? " [" + range_text(option) + "]" : "");
    }
    out += "\n";
  }
  struct Section {
    Role role;
    const char* title;
  };
  for (const Section& section : {Section{Role::kStated, "Compared with config.json"},
                                 Section{Role::kFixed, "Taken with one value only"},
                                 Section{Role::kIgnored, "Taken, without effect here"},
                                 Section{Role::kRefused, "Known, and refused"}}) {
    out += fmt::format("### {}\n\n| option | table | {} |\n|---|---|---|\n", section.title,
                       section.role == Role::kStated ? "key of config.json" : "why");
    for (const Option& option : all_options()) {
      if (option.role != section.role) continue;
      const bool valued = section.role == Role::kFixed && option.kind != Kind::kFlag;
      out += fmt::format("| `--{}{}` | {} | {} |\n", option.name, valued ? " " + option.target : "",
                         group_name(option.group),
                         cell(section.role == Role::kStated ? option.target : option.help));
    }
    out += "\n";
  }
  return out;
}

}  // namespace lockstep::cli
