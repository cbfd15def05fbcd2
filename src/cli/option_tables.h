// SPDX-License-Identifier: Apache-2.0
// The parts all_options() is made of, and the words they are written in.
#pragma once

#include <string>
#include <vector>

#include "cli/option.h"

namespace lockstep::cli {

std::vector<Option> own_options();       // options that do something
std::vector<Option> training_options();  // of these, the settings of an update
std::vector<Option> command_options();   // of single commands
std::vector<Option> model_facts();       // what scripts say about the model
std::vector<Option> foreign_options();   // fixed, ignored and refused options of launch scripts

struct About {
  std::string name;
  CommandSet commands;
  Group group;
  Role role;
};

Option flag_option(const About& about, bool fallback, const std::string& help);
Option int_option(const About& about, const std::string& fallback, Range range, const std::string& help);
Option real_option(const About& about, const std::string& fallback, Range range, const std::string& help);
Option text_option(const About& about, const std::string& value, const std::string& fallback,
                   const std::string& help);
Option choice_option(const About& about, const std::string& choices, const std::string& fallback,
                     const std::string& help);
Option list_option(const About& about, Kind kind, const std::string& value, const std::string& help);
Option required(Option option);

Range at_least(double lowest);
Range between(double lowest, double highest);
Range above(double lowest, double highest);  // lowest < x <= highest
Range below(double lowest, double highest);  // lowest <= x < highest
Range or_special(Range range, double special);

}  // namespace lockstep::cli
