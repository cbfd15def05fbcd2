// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cli/commands.h"
#include "demo/demo.h"

namespace lockstep::cli {

Status command_demo(const Invocation& invocation, const std::string& shown_program) {
  demo::DemoConfig config;
  config.out = invocation.values.text("out");
  config.recipe.seed = static_cast<uint64_t>(invocation.values.integer("rollout-seed"));
  config.shown_program = shown_program;
  config.print = [](const std::string& line) {
    print(line + "\n");
    std::fflush(stdout);  // minutes pass between lines
  };
  return demo::run_demo(config);
}

}  // namespace lockstep::cli
