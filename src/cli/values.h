// SPDX-License-Identifier: Apache-2.0
// What a command line and a file said, checked against the table one value at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/option.h"
#include "core/status.h"

namespace lockstep::cli {

struct Value {
  bool flag = false;
  int64_t integer = 0;
  double real = 0;
  std::vector<std::string> words;  // kText, kChoice: one
  std::vector<int64_t> integers;
  bool from_file = false;  // else from the command line
  std::string where;       // "--lr" or "run.toml:12: training.lr": how an error begins
};

// Each of these sets what its kind holds and checks it; errors begin with value->where.
Status set_flag(const Option& option, bool flag, Value* value);
Status set_integer(const Option& option, int64_t integer, Value* value);
Status set_real(const Option& option, double real, Value* value);
Status set_words(const Option& option, const std::vector<std::string>& words, Value* value);  // from text

// "from 1 to 1024", "above 0 and at most 1, or 0".
std::string range_text(const Option& option);
// The shortest decimal text that reads back as the same binary64.
std::string real_text(double value);
// Strict: the whole text, decimal, finite.
Result<double> parse_real(std::string_view text);
// Too large for 64 bits: the error says to take `range`.
Result<int64_t> parse_integer(std::string_view text, std::string_view range = "a number of 64 bits");
bool is_utf8(std::string_view text);
// Text as it may stand in a one-line message: controls and bytes that are no UTF-8 escaped, at most 80 bytes.
std::string shown(std::string_view text);

// Values of one command. Getters fall back to the option's default; asking for an option the command does not
// have is a bug.
class Values {
 public:
  explicit Values(CommandSet command) : command_(command) {}

  CommandSet command() const { return command_; }
  bool given(std::string_view name) const { return given_.count(std::string(name)) != 0; }
  const Value* find(std::string_view name) const;  // null: not given
  void set(const std::string& name, Value value) { given_[name] = std::move(value); }
  const std::map<std::string, Value>& all_given() const { return given_; }

  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  std::string text(std::string_view name) const;  // "" when there is neither value nor default
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  // How an error about this option begins, given or not.
  std::string where(std::string_view name) const;

 private:
  Value value_or_default(std::string_view name) const;

  CommandSet command_;
  std::map<std::string, Value> given_;
};

}  // namespace lockstep::cli
