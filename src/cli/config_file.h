// SPDX-License-Identifier: Apache-2.0
// --config: option names as TOML keys (with - or _), flat or in the table of their group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/values.h"
#include "core/status.h"

namespace lockstep::cli {

// Sets what `values` does not hold yet: the command line came first and wins. Keys of other commands are
// checked like all and left alone; one note names them. Errors begin "FILE:LINE: key: ".
Status read_config_file(const std::string& path, Values* values, std::vector<std::string>* notes);

// The same of a text; `source` names it in messages.
Status read_config_text(std::string_view text, const std::string& source, Values* values,
                        std::vector<std::string>* notes);

}  // namespace lockstep::cli
