// SPDX-License-Identifier: Apache-2.0
// The one table of everything a command line or a TOML file may say. Parsing, help, checks, --dry-run and
// docs/options.md follow from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// Commands as bits, so that an option names all it belongs to.
using CommandSet = uint32_t;
inline constexpr CommandSet kTrain = 1U << 0;
inline constexpr CommandSet kSft = 1U << 1;
inline constexpr CommandSet kEval = 1U << 2;
inline constexpr CommandSet kGenerate = 1U << 3;
inline constexpr CommandSet kInit = 1U << 4;
inline constexpr CommandSet kVerify = 1U << 5;
inline constexpr CommandSet kInspect = 1U << 6;
inline constexpr CommandSet kDemo = 1U << 7;
inline constexpr CommandSet kDebugTokenize = 1U << 8;
inline constexpr CommandSet kDebugTemplate = 1U << 9;
inline constexpr CommandSet kDebugGrade = 1U << 10;
inline constexpr CommandSet kDebugLogits = 1U << 11;
inline constexpr CommandSet kDebugTc16 = 1U << 12;
inline constexpr CommandSet kEveryCommand = (1U << 13) - 1;
// Commands that may be given a --config file.
inline constexpr CommandSet kConfigurable = kTrain | kSft | kEval | kGenerate;

struct Command {
  CommandSet bit;
  const char* name;     // "train", "debug tokenize"
  const char* summary;  // one line
  const char* usage;    // what follows the name
  const char* text;     // a paragraph for --help
  int min_words;        // words that are no options
  int max_words;
};

const std::vector<Command>& all_commands();
const Command& command_of(CommandSet bit);

enum class Kind {
  kFlag,    // --name, --no-name; true, false
  kInt,     // 64 bit
  kReal,    // finite binary64
  kText,    // UTF-8 without NUL
  kChoice,  // one of `choices`
  kTexts,   // one or more
  kInts,
  kPairs,  // NAME VALUE ...
};

enum class Group { kModel, kData, kRollout, kReward, kTraining, kEval, kRun, kMachine, kCommand };
inline constexpr Group kTomlGroups[] = {Group::kModel,    Group::kData, Group::kRollout, Group::kReward,
                                        Group::kTraining, Group::kEval, Group::kRun,     Group::kMachine};
const char* group_name(Group group);   // the TOML table: "model"
const char* group_title(Group group);  // the heading of --help

enum class Role {
  kIdentity,  // means something: two runs that differ here are not the same run
  kPath,      // a place; what it holds counts, its name does not
  kFree,      // changes no bit
  kStated,    // describes the model: compared with config.json, refused when it differs
  kFixed,     // only one value is taken
  kIgnored,   // taken for the sake of launch scripts; one line says why it has no effect
  kRefused,   // known, and not in this release
};

// Numbers: lowest..highest, and `special` besides where there is one (0: off, greedy; -1: off, all).
struct Range {
  double lowest = 0;
  double highest = 0;
  bool above = false;  // lowest itself is outside
  bool below = false;  // highest itself is outside
  bool has_special = false;
  double special = 0;
};

struct Option {
  std::string name;  // without the dashes; "sglang-*" stands for all names that begin so
  CommandSet commands = 0;
  Kind kind = Kind::kText;
  Group group = Group::kCommand;
  Role role = Role::kFree;
  std::string value;     // what help calls the value; choices: "a|b|c"
  std::string fallback;  // the default as text; "": none
  std::string help;      // kIgnored, kRefused, kFixed: the reason
  Range range;
  std::string target;              // kStated: the config.json key; kFixed: the value
  bool required = false;           // by every command it belongs to
  bool may_be_empty = false;       // kText: "" is a value
  bool repeatable = false;         // kTexts: may be given more than once
  bool only_command_line = false;  // not a key of a file

  bool is_prefix() const { return name.size() > 1 && name.back() == '*'; }
  std::vector<std::string> choices() const;
};

// Options of one name have disjoint commands.
const std::vector<Option>& all_options();

// The option of that name (without dashes) of one of `commands`; exact names before prefixes. Null: none.
const Option* find_option(std::string_view name, CommandSet commands);

}  // namespace lockstep::cli
