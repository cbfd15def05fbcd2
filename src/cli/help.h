// SPDX-License-Identifier: Apache-2.0
// What --help prints.
#pragma once

#include <string>
#include <string_view>

#include "cli/option.h"
#include "core/device_error.h"

namespace lockstep::cli {

std::string overview();        // `lockstep` alone
std::string debug_overview();  // `lockstep debug`
std::string command_help(CommandSet command);
std::string version_text();
// The error of a command that finds no memory. prefix: "lockstep train".
std::string out_of_memory_text(std::string_view prefix);
// What a GPU's failure was, and what to do about it.
std::string device_error_text(std::string_view prefix, const DeviceError& error);
// The tables of docs/options.md, in Markdown.
std::string options_markdown();

}  // namespace lockstep::cli
