// SPDX-License-Identifier: Apache-2.0
// "Did you mean" for options: by spelling, by other tools' names for the same thing, by a part of the name.
#pragma once

#include <string>
#include <string_view>

#include "cli/option.h"

namespace lockstep::cli {

// `name` without dashes in front; options of one of `commands`, of `group` only where it is given. Null: none
// is near.
const Option* nearest_option(std::string_view name, CommandSet commands, const Group* group = nullptr);

}  // namespace lockstep::cli
