// SPDX-License-Identifier: Apache-2.0
// lockstep demo: the whole story in three minutes, every part a process of its own, as a person would run it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/status.h"
#include "demo/recipe.h"

namespace lockstep::demo {

struct DemoConfig {
  std::string out = "lockstep-demo";  // must be new or an empty folder
  Recipe recipe;                      // recipe.seed: --rollout-seed
  std::string program = "/proc/self/exe";
  std::string shown_program = "lockstep";         // in the commands named at the end: argv[0]
  std::function<void(const std::string&)> print;  // one line of standard output
};

// Makes model and problems from the seed, warms up, runs GRPO twice (the second time with another schedule,
// killed and resumed), and compares. The last line printed is
//   demo: accuracy A -> B on N unseen problems; runs identical; checkpoint sha256 HEX
// Errors: kInvalid: the folder is in use, or nothing can be written there; kDifferent: everything else. The
// last lines of a failed part's log go to standard error.
Status run_demo(const DemoConfig& config);

}  // namespace lockstep::demo
