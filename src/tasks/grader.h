// SPDX-License-Identifier: Apache-2.0
// What every grader is: a pure function of (response, label).
#pragma once

#include <string_view>

namespace lockstep::tasks {

class Grader {
 public:
  Grader() = default;
  Grader(const Grader&) = delete;
  Grader& operator=(const Grader&) = delete;
  virtual ~Grader() = default;

  // Any bytes are answered, in time linear in their number; never throws; no state, locale or clock enters.
  // Several threads may grade at once.
  virtual double grade(std::string_view response, std::string_view label) const = 0;
};

}  // namespace lockstep::tasks
