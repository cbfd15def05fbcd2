// SPDX-License-Identifier: Apache-2.0
// What --help prints.
#pragma once

#include <string>
#include <string_view>

#include "cli/option.h"

namespace lockstep::cli {

std::string overview();        // `lockstep` alone
std::string debug_overview();  // `lockstep debug`
std::string command_help(CommandSet command);
std::string version_text();
// The error of a command that finds no memory. prefix: "lockstep train".
std::string out_of_memory_text(std::string_view prefix);
// The tables of docs/options.md, in Markdown.
std::string options_markdown();

}  // namespace lockstep::cli
