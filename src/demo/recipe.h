// SPDX-License-Identifier: Apache-2.0
// What the demo runs: its folders, its settings as TOML files, and the commands a person would type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "demo/problems.h"

namespace lockstep::demo {

using Arguments = std::vector<std::string>;

struct Recipe {
  uint64_t seed = 42;
  int64_t test_problems = 512;
  WarmupPlan warmup;
  double warmup_lr = 2e-3;
  int64_t steps = 60;
  int64_t prompts = 16;  // a step
  int64_t samples = 8;   // a prompt
  double lr = 2e-4;
  int64_t max_new_tokens = 32;
  int64_t save_interval = 20;
  int64_t kill_step = 30;  // of run B: after it, at whatever moment that is
  // What the demo holds itself to.
  double least_before = 0.30;
  double most_before = 0.60;
  double least_gain = 0.20;
};

// Paths of one demo folder.
struct Layout {
  explicit Layout(const std::string& folder);
  std::string folder, model_config, tokenizer, model, data, configs, logs, eval;
  std::string sft_data, train_data, test_data;
  std::string sft_run, run_a, run_b;
  std::string log(const std::string& stage) const;
};

// "iter_0000059": the checkpoint after `steps` steps.
std::string last_checkpoint(const std::string& run, int64_t steps);

std::string sft_toml(const Recipe& recipe, const Layout& layout);
std::string grpo_toml(const Recipe& recipe, const Layout& layout);
std::string eval_toml(const Recipe& recipe, const Layout& layout);

Arguments init_command(const Recipe& recipe, const Layout& layout);
Arguments sft_command(const Layout& layout);
Arguments eval_command(const Layout& layout, const std::string& checkpoint, const std::string& out);
Arguments grpo_command(const Layout& layout, const std::string& run);
// Other values of every free option than the defaults that run A has.
Arguments other_schedule();
Arguments verify_command(const std::string& a, const std::string& b);

// Words with single quotes where a shell needs them.
std::string shell_line(const std::string& program, const Arguments& arguments);

}  // namespace lockstep::demo
