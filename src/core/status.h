// SPDX-License-Identifier: Apache-2.0
// Errors of input, configuration and I/O. Our own bugs are LOCKSTEP_CHECK (check.h); libraries never exit.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "core/check.h"

namespace lockstep {

// The value is the exit code of the program.
enum class StatusCode : int {
  kOk = 0,
  kDifferent = 1,      // done, and the answer is no (verify: different; a known answer missed)
  kInvalid = 2,        // usage, configuration, missing or malformed input; nothing was written
  kNotComparable = 3,  // the two sides are not of one identity
  kStopped = 4,        // a run stopped by its own check or a failed write; last checkpoint intact
};

// A message is one line that names the file, key or option, the line where there is one, and the remedy.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error with `context` and ": " in front.
  Status with_context(const std::string& context) const { return {code_, context + ": " + message_}; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status ok_status() {
  return {};
}

template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kInvalid, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status different(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kDifferent, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status not_comparable(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kNotComparable, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Status stopped(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kStopped, fmt::format(format, std::forward<Args>(args)...)};
}

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { LOCKSTEP_CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    LOCKSTEP_CHECK(ok(), status_.message());
    return *value_;
  }
  const T& value() const& {
    LOCKSTEP_CHECK(ok(), status_.message());
    return *value_;
  }
  T value() && {  // by value, so that `for (auto& x : f().value())` does not dangle
    LOCKSTEP_CHECK(ok(), status_.message());
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace lockstep

#define LOCKSTEP_CONCAT_INNER(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_INNER(a, b)

// Returns the error of `expr` (a Status) from the enclosing function.
#define LOCKSTEP_RETURN_IF_ERROR(expr)                   \
  do {                                                   \
    ::lockstep::Status lockstep_status_ = (expr);        \
    if (!lockstep_status_.ok()) return lockstep_status_; \
  } while (false)

// NOLINTBEGIN(bugprone-macro-parentheses): lhs may be a declaration.
// LOCKSTEP_ASSIGN_OR_RETURN(auto x, f()): f returns Result<T>.
#define LOCKSTEP_ASSIGN_OR_RETURN(lhs, expr) \
  LOCKSTEP_ASSIGN_OR_RETURN_(LOCKSTEP_CONCAT(lockstep_result_, __LINE__), lhs, expr)
#define LOCKSTEP_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                               \
  if (!result.ok()) return result.status();           \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
