// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <map>

#include "cli/nearest.h"
#include "cli/option.h"
#include "core/file.h"
#include "core/suggest.h"

namespace lockstep::cli {
namespace {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// A message is one line, whatever stands in the file.
std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

// The parser's own words, which begin "Error while parsing value: ", with a remedy where there is a usual
// one.
std::string syntax_text(std::string_view description) {
  const std::string_view lead = "Error while parsing ";
  std::string text = one_line(description);
  if (text.compare(0, lead.size(), lead) == 0) text = "bad " + text.substr(lead.size());
  if (text.find("cannot redefine") != std::string::npos) return text + "; give it once";
  if (text.find("could not determine value type") != std::string::npos)
    return text + "; texts stand in quotes";
  return text;
}

std::string type_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

// The line of the first key or table name of more parts than `most`, or 0. The parser, and what frees its
// tables, recurse for every part; it bounds values itself.
int64_t line_of_long_key(std::string_view text, int most) {
  int64_t line = 1;
  int dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const bool block = text.substr(i, 3) == std::string(3, c);
      const size_t quote = block ? 3 : 1;
      for (i += quote; i < text.size(); ++i) {
        if (text[i] == '\n' && !block) break;  // not closed: the parser says so
        if (text[i] == '\n') ++line;
        if (text[i] == '\\' && c == '"') {
          ++i;
          if (i < text.size() && text[i] == '\n') ++line;
        } else if (text.substr(i, quote) == std::string(quote, c)) {
          i += quote - 1;
          break;
        }
      }
      if (i < text.size() && text[i] == '\n') --i;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '.') {
      if (++dots >= most) return line;
    } else if (c == '\n' || std::string_view("=,[]{}").find(c) != std::string_view::npos) {
      dots = 0;
      if (c == '\n') ++line;
    }
  }
  return 0;
}

class Reader {
 public:
  Reader(const std::string& source, Values* values) : source_(source), values_(values) {}

  Status read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const Group* group = find_group(key.str());
      if (group == nullptr) {
        LOCKSTEP_RETURN_IF_ERROR(read_key(key, node, nullptr));
        continue;
      }
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        return invalid("{}: is the name of a table; write [{}] and keys below it", place(key, nullptr),
                       group_name(*group));
      }
      for (const auto& [inner, value] : *table) LOCKSTEP_RETURN_IF_ERROR(read_key(inner, value, group));
    }
    return ok_status();
  }

  const std::vector<std::string>& unused() const { return unused_; }

 private:
  static const Group* find_group(std::string_view name) {
    for (const Group& group : kTomlGroups) {
      if (name == group_name(group)) return &group;
    }
    return nullptr;
  }

  std::string place(const toml::key& key, const Group* group) const {
    return fmt::format("{}:{}: {}{}", source_, key.source().begin.line,
                       group == nullptr ? "" : std::string(group_name(*group)) + ".", one_line(key.str()));
  }

  Status read_key(const toml::key& key, const toml::node& node, const Group* group) {
    Value value;
    value.where = place(key, group);
    value.from_file = true;
    const std::string name = with_dashes(std::string(key.str()));
    const Option* option = find_option(name, values_->command());
    const bool used = option != nullptr;
    if (!used) option = find_option(name, kConfigurable);
    if (option != nullptr && option->only_command_line) {
      return invalid("{}: stands on the command line only: --{}", value.where, option->name);
    }
    if (option == nullptr) return unknown_key(name, node, value.where, group);
    if (group != nullptr && *group != option->group) {
      return invalid("{}: belongs in [{}]", value.where, group_name(option->group));
    }
    const auto [before, is_new] = seen_.emplace(name, value.where);
    if (!is_new) return invalid("{}: given twice (also {}); give it once", value.where, before->second);
    LOCKSTEP_RETURN_IF_ERROR(read_value(*option, node, &value));
    if (!used) {
      unused_.push_back(name);
    } else if (!values_->given(name)) {
      values_->set(name, std::move(value));
    }
    return ok_status();
  }

  Status unknown_key(const std::string& name, const toml::node& node, const std::string& where,
                     const Group* group) const {
    if (node.is_table()) {
      std::vector<std::string> names;
      for (const Group& known : kTomlGroups) names.emplace_back(group_name(known));
      const std::string near = nearest_name(name, names);
      return invalid("{}: unknown table; {}", where,
                     near.empty() ? "tables are " + fmt::format("{}", fmt::join(names, ", "))
                                  : "did you mean [" + near + "]?");
    }
    const Option* near = group == nullptr ? nullptr : nearest_option(name, kConfigurable, group);
    if (near == nullptr) near = nearest_option(name, kConfigurable);
    if (near != nullptr && !near->only_command_line) {
      return invalid("{}: unknown key; did you mean {} in [{}]?", where, near->name, group_name(near->group));
    }
    return invalid("{}: unknown key; keys are option names, see `lockstep {} --help`", where,
                   command_of(values_->command()).name);
  }

  static Status wrong_type(const Option& option, const toml::node& node, const std::string& where) {
    std::string wanted;
    std::string remedy;
    switch (option.kind) {
      case Kind::kFlag:
        wanted = "true or false";
        break;
      case Kind::kInt:
        wanted = "a whole number";
        break;
      case Kind::kReal:
        wanted = "a number";
        break;
      case Kind::kText:
      case Kind::kChoice:
        wanted = "text in quotes";
        break;
      case Kind::kInts:
        wanted = "an array of whole numbers";
        break;
      default:
        wanted = "an array of texts";
    }
    if (const auto* text = node.as_string()) {
      const bool number = option.kind == Kind::kInt    ? parse_integer(text->get()).ok()
                          : option.kind == Kind::kReal ? parse_real(text->get()).ok()
                                                       : false;
      if (number) remedy = fmt::format("; write {} without quotes", text->get());
      if (option.kind == Kind::kFlag && (text->get() == "true" || text->get() == "false")) {
        remedy = fmt::format("; write {} without quotes", text->get());
      }
    }
    return invalid("{}: wants {}, found {}{}", where, wanted, type_text(node), remedy);
  }

  // Words of an array of texts or whole numbers, or of one of them.
  static bool words_of(const Option& option, const toml::node& node, std::vector<std::string>* words) {
    const bool any = option.role == Role::kIgnored || option.role == Role::kRefused;
    const auto add = [&](const toml::node& item) {
      if (const auto* text = item.as_string(); text != nullptr && (any || option.kind != Kind::kInts)) {
        words->push_back(text->get());
      } else if (const auto* integer = item.as_integer();
                 integer != nullptr && (any || option.kind == Kind::kInts)) {
        words->push_back(std::to_string(integer->get()));
      } else if (any && (item.is_floating_point() || item.is_boolean())) {
        words->push_back("value");
      } else {
        return false;
      }
      return true;
    };
    const toml::array* array = node.as_array();
    if (array == nullptr) return add(node);
    return std::all_of(array->begin(), array->end(), add);
  }

  static Status read_value(const Option& option, const toml::node& node, Value* value) {
    switch (option.kind) {
      case Kind::kFlag:
        if (const auto* flag = node.as_boolean()) return set_flag(option, flag->get(), value);
        break;
      case Kind::kInt:
        if (const auto* integer = node.as_integer()) return set_integer(option, integer->get(), value);
        break;
      case Kind::kReal:
        if (const auto* real = node.as_floating_point()) return set_real(option, real->get(), value);
        if (const auto* integer = node.as_integer()) {
          return set_real(option, static_cast<double>(integer->get()), value);
        }
        break;
      case Kind::kText:
      case Kind::kChoice:
        if (const auto* text = node.as_string()) return set_words(option, {text->get()}, value);
        break;
      case Kind::kTexts:
      case Kind::kInts:
      case Kind::kPairs: {
        std::vector<std::string> words;
        if (words_of(option, node, &words)) return set_words(option, words, value);
        break;
      }
    }
    return wrong_type(option, node, value->where);
  }

  const std::string& source_;
  Values* values_;
  std::map<std::string, std::string> seen_;  // name to place
  std::vector<std::string> unused_;
};

}  // namespace

Status read_config_text(std::string_view text, const std::string& source, Values* values,
                        std::vector<std::string>* notes) {
  constexpr int kMostParts = 16;
  if (const int64_t line = line_of_long_key(text, kMostParts); line > 0) {
    return invalid("{}:{}: a key of more than {} parts; keys are option names, in a table or in none", source,
                   line, kMostParts);
  }
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    return invalid("{}:{}: {}", source, error.source().begin.line, syntax_text(error.description()));
  }
  Reader reader(source, values);
  LOCKSTEP_RETURN_IF_ERROR(reader.read(root));
  if (!reader.unused().empty()) {
    notes->push_back(fmt::format("{}: keys of other commands, not used here: {}", source,
                                 fmt::join(reader.unused(), ", ")));
  }
  return ok_status();
}

Status read_config_file(const std::string& path, Values* values, std::vector<std::string>* notes) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.status().with_context("--config");
  return read_config_text(text.value(), path, values, notes);
}

}  // namespace lockstep::cli
