// SPDX-License-Identifier: Apache-2.0
// Lines on stderr: "lockstep: ..." for people. Results go to stdout, written by cli/.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace lockstep {

void log_line(const std::string& line);     // as it is
void log_warning(const std::string& text);  // "lockstep: warning: ..."

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_warning(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
