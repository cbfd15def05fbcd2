// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <algorithm>

#include "cli/config_file.h"
#include "cli/nearest.h"
#include "core/suggest.h"

namespace lockstep::cli {
namespace {

bool is_option(const std::string& word) {
  return word.size() > 2 && word[0] == '-' && word[1] == '-';
}

bool takes_many(const Option& option) {
  return option.kind == Kind::kTexts || option.kind == Kind::kInts || option.kind == Kind::kPairs;
}

std::string unknown_option(const std::string& name, CommandSet command) {
  std::string others;
  for (const Command& other : all_commands()) {
    if (find_option(name, other.bit) == nullptr) continue;
    others += (others.empty() ? "" : ", ") + std::string(other.name);
  }
  if (!others.empty()) {
    return fmt::format("--{}: not an option of {}; it belongs to {}", shown(name), command_of(command).name,
                       others);
  }
  const Option* near = nearest_option(name, command);
  if (near != nullptr)
    return fmt::format("--{}: unknown option; did you mean --{}?", shown(name), near->name);
  return fmt::format("--{}: unknown option; see `lockstep {} --help`", shown(name), command_of(command).name);
}

// One pass over the words after the command's name.
class Parser {
 public:
  Parser(CommandSet command, const std::vector<std::string>& words, size_t next)
      : command_(command), words_(words), next_(next) {}

  Status parse(Invocation* out) {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (word == "--") {
        while (next_ < words_.size()) out->words.push_back(words_[next_++]);
      } else if (word == "-h") {
        out->help = true;
      } else if (is_option(word)) {
        LOCKSTEP_RETURN_IF_ERROR(parse_option(word, out));
      } else if (word.size() > 1 && word[0] == '-') {
        return invalid("{}: unknown option; options begin with two dashes", shown(word));
      } else {
        out->words.push_back(word);
      }
    }
    return ok_status();
  }

 private:
  Status parse_option(const std::string& word, Invocation* out) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Option* option = find_option(name, command_);
    bool negated = false;
    if (option == nullptr && name.rfind("no-", 0) == 0) {
      option = find_option(name.substr(3), command_);
      negated = option != nullptr && option->kind == Kind::kFlag;
      if (!negated) option = nullptr;
    }
    if (option == nullptr) return invalid("{}", unknown_option(name, command_));
    const std::string key = option->is_prefix() ? name : option->name;
    Value value;
    value.where = "--" + name;
    if (const Value* before = out->values.find(key); before != nullptr && !option->repeatable) {
      return invalid("--{}: given twice ({}); give it once", name, before->where);
    }
    if (option->kind == Kind::kFlag) {
      if (equals != std::string::npos) {
        return invalid("--{}: takes no value; --{} or --no-{}", name, option->name, option->name);
      }
      LOCKSTEP_RETURN_IF_ERROR(set_flag(*option, !negated, &value));
    } else {
      std::vector<std::string> words;
      if (const Value* before = out->values.find(key)) words = before->words;
      LOCKSTEP_RETURN_IF_ERROR(take_words(*option, name, word, equals, &words));
      LOCKSTEP_RETURN_IF_ERROR(set_words(*option, words, &value));
    }
    out->values.set(key, std::move(value));
    return ok_status();
  }

  Status take_words(const Option& option, const std::string& name, const std::string& word, size_t equals,
                    std::vector<std::string>* words) {
    if (equals != std::string::npos) {
      words->push_back(word.substr(equals + 1));
      return ok_status();
    }
    // An option nobody here knows by name may be a flag.
    const size_t least = option.is_prefix() ? 0 : 1;
    const size_t most = takes_many(option) ? words_.size() : 1;
    size_t taken = 0;
    while (taken < most && next_ < words_.size() && !is_option(words_[next_])) {
      words->push_back(words_[next_++]);
      ++taken;
    }
    if (taken < least) {
      return invalid("--{}: needs a value: --{} {} (a value that begins with two dashes: --{}=VALUE)", name,
                     name, option.value, name);
    }
    if (taken == 0) words->push_back("true");
    return ok_status();
  }

  CommandSet command_;
  const std::vector<std::string>& words_;
  size_t next_;
};

Result<CommandSet> find_command(const std::vector<std::string>& words, size_t* next) {
  std::string name = words[*next];
  std::vector<std::string> names;
  if (name == "debug" && *next + 1 < words.size()) {
    name += " " + words[*next + 1];
    ++*next;
  }
  ++*next;
  for (const Command& command : all_commands()) {
    if (name == command.name) return command.bit;
    names.emplace_back(command.name);
  }
  names.insert(names.end(), {"help", "debug"});
  const std::string near = nearest_name(name, names);
  return invalid("{}: unknown command; {}", shown(name),
                 near.empty() ? "`lockstep` alone lists the commands" : "did you mean " + near + "?");
}

void add_notes(Invocation* out) {
  for (const auto& [name, value] : out->values.all_given()) {
    const Option* option = find_option(name, out->command);
    if (option == nullptr || option->role != Role::kIgnored) continue;
    if (option->kind == Kind::kFlag && !value.flag) continue;
    out->notes.push_back(fmt::format("{}: no effect here: {}", value.where, option->help));
  }
}

Status check_words(const Invocation& invocation) {
  const Command& command = command_of(invocation.command);
  const auto found = static_cast<int>(invocation.words.size());
  if (found > command.max_words) {
    return invalid("{}: unexpected word; usage: lockstep {} {}",
                   shown(invocation.words[static_cast<size_t>(command.max_words)]), command.name,
                   command.usage);
  }
  if (found < command.min_words) return invalid("usage: lockstep {} {}", command.name, command.usage);
  return ok_status();
}

Status check_required(const Invocation& invocation) {
  for (const Option& option : all_options()) {
    if ((option.commands & invocation.command) == 0 || !option.required) continue;
    if (!invocation.values.given(option.name)) {
      return invalid("--{} {}: is required; {}", option.name, option.value, option.help);
    }
  }
  return ok_status();
}

// `lockstep`, `lockstep help [COMMAND]`, --help, --version. True: nothing more to read.
Result<bool> parse_front(const std::vector<std::string>& words, Invocation* out) {
  if (words.empty()) {
    out->help = true;
    return true;
  }
  const std::string& first = words[0];
  if (first == "--version" || first == "version") {
    out->version = true;
    return true;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    out->help = true;
    if (words.size() == 1) return true;
    if (words.size() == 2 && (words[1] == "debug" || words[1] == "--markdown")) {
      out->topic = words[1];
      return true;
    }
    size_t next = 1;
    LOCKSTEP_ASSIGN_OR_RETURN(out->command, find_command(words, &next));
    return true;
  }
  if (first == "debug" && (words.size() == 1 || words[1] == "--help" || words[1] == "-h")) {
    out->help = true;
    out->topic = "debug";
    return true;
  }
  if (first[0] == '-')
    return invalid("{}: unknown option; a command comes first: lockstep COMMAND ...", shown(first));
  return false;
}

}  // namespace

Result<Invocation> parse_command_line(const std::vector<std::string>& words, std::string* prefix) {
  *prefix = "lockstep";
  Invocation out;
  LOCKSTEP_ASSIGN_OR_RETURN(const bool done, parse_front(words, &out));
  if (done) return out;
  size_t next = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(out.command, find_command(words, &next));
  *prefix = fmt::format("lockstep {}", command_of(out.command).name);
  out.values = Values(out.command);
  const bool asks_help = std::find(words.begin(), words.end(), "--help") != words.end();
  if (asks_help) {
    out.help = true;
    return out;
  }
  LOCKSTEP_RETURN_IF_ERROR(Parser(out.command, words, next).parse(&out));
  if (out.help) return out;
  LOCKSTEP_RETURN_IF_ERROR(check_words(out));
  if (const Value* config = out.values.find("config")) {
    LOCKSTEP_RETURN_IF_ERROR(read_config_file(config->words[0], &out.values, &out.notes));
  }
  LOCKSTEP_RETURN_IF_ERROR(check_required(out));
  add_notes(&out);
  return out;
}

}  // namespace lockstep::cli
