// SPDX-License-Identifier: Apache-2.0
// Progress of long work on stderr: one line rewritten in place on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace lockstep::loop {

double seconds_since(std::chrono::steady_clock::time_point start);
// "1 h 02 min", "3 min 20 s", "12 s".
std::string duration_text(double seconds);

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  // A passing state, shown on a terminal only, at most ten times a second.
  void update(const std::string& text);
  // A line that stays.
  void line(const std::string& text);

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace lockstep::loop
