// SPDX-License-Identifier: Apache-2.0
// LOCKSTEP_CHECK(condition[, message]): a bug of ours. Prints expression, place and message, and aborts.
#pragma once

#include <string>

namespace lockstep {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& message);

namespace internal {
inline std::string check_message() {
  return {};
}
inline std::string check_message(std::string message) {
  return message;
}
}  // namespace internal

}  // namespace lockstep

#define LOCKSTEP_CHECK(condition, ...)                                            \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition,                    \
                               ::lockstep::internal::check_message(__VA_ARGS__)); \
  } while (false)
