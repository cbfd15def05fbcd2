// SPDX-License-Identifier: Apache-2.0
#include "demo/recipe.h"

#include <fmt/format.h>

#include "core/file.h"

namespace lockstep::demo {
namespace {

// A TOML basic string: paths may hold anything.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

constexpr const char* kOptimizer =
    "lr-decay-style = \"cosine\"\n"
    "weight-decay = 0.1\n"
    "adam-beta1 = 0.9\n"
    "adam-beta2 = 0.98\n"
    "clip-grad = 1.0\n";

}  // namespace

Layout::Layout(const std::string& root)
    : folder(root),
      model_config(join_path(root, "model.json")),
      tokenizer(join_path(root, "tokenizer")),
      model(join_path(root, "model")),
      data(join_path(root, "data")),
      configs(join_path(root, "configs")),
      logs(join_path(root, "logs")),
      eval(join_path(root, "eval")),
      sft_data(join_path(data, "sft.jsonl")),
      train_data(join_path(data, "train.jsonl")),
      test_data(join_path(data, "test.jsonl")),
      sft_run(join_path(root, "sft")),
      run_a(join_path(root, "run-a")),
      run_b(join_path(root, "run-b")) {}

std::string Layout::log(const std::string& stage) const {
  return join_path(logs, stage + ".log");
}

std::string last_checkpoint(const std::string& run, int64_t steps) {
  return join_path(run, fmt::format("iter_{:07d}", steps - 1));
}

std::string sft_toml(const Recipe& recipe, const Layout& layout) {
  return fmt::format(
      "# Supervised warm-up: lockstep sft --config THIS --run-dir DIR\n"
      "hf-checkpoint = {}\n"
      "prompt-data = {}\n"
      "input-key = \"messages\"\n"
      "apply-chat-template = true\n"
      "rollout-shuffle = false  # the rows are in their order already\n"
      "num-rollout = {}\n"
      "global-batch-size = {}\n"
      "rollout-seed = {}\n"
      "lr = {}\n"
      "{}",
      quoted(layout.model), quoted(layout.sft_data), recipe.warmup.batches, recipe.warmup.batch_size,
      recipe.seed, recipe.warmup_lr, kOptimizer);
}

std::string grpo_toml(const Recipe& recipe, const Layout& layout) {
  return fmt::format(
      "# GRPO: lockstep train --config THIS --run-dir DIR\n"
      "hf-checkpoint = {}\n"
      "prompt-data = {}\n"
      "input-key = \"question\"\n"
      "label-key = \"answer\"\n"
      "apply-chat-template = true\n"
      "rollout-shuffle = true\n"
      "rm-type = \"gsm8k\"\n"
      "advantage-estimator = \"grpo\"\n"
      "num-rollout = {}\n"
      "rollout-batch-size = {}\n"
      "n-samples-per-prompt = {}\n"
      "rollout-max-response-len = {}\n"
      "rollout-temperature = 1.0\n"
      "rollout-seed = {}\n"
      "global-batch-size = {}\n"
      "lr = {}\n"
      "{}"
      "save-interval = {}\n",
      quoted(last_checkpoint(layout.sft_run, recipe.warmup.batches)), quoted(layout.train_data), recipe.steps,
      recipe.prompts, recipe.samples, recipe.max_new_tokens, recipe.seed, recipe.prompts * recipe.samples,
      recipe.lr, kOptimizer, recipe.save_interval);
}

std::string eval_toml(const Recipe& recipe, const Layout& layout) {
  return fmt::format(
      "# Accuracy on unseen problems: lockstep eval --config THIS --hf-checkpoint DIR\n"
      "eval-prompt-data = [\"test\", {}]\n"
      "input-key = \"question\"\n"
      "label-key = \"answer\"\n"
      "apply-chat-template = true\n"
      "rm-type = \"gsm8k\"\n"
      "eval-temperature = 1.0\n"
      "eval-max-response-len = {}\n"
      "rollout-seed = {}\n",
      quoted(layout.test_data), recipe.max_new_tokens, recipe.seed);
}

Arguments init_command(const Recipe& recipe, const Layout& layout) {
  return {"init",           "--model-config", layout.model_config,         "--tokenizer",
          layout.tokenizer, "--rollout-seed", std::to_string(recipe.seed), "--save",
          layout.model};
}

Arguments sft_command(const Layout& layout) {
  return {"sft", "--config", join_path(layout.configs, "sft.toml"), "--run-dir", layout.sft_run};
}

Arguments eval_command(const Layout& layout, const std::string& checkpoint, const std::string& out) {
  return {"eval",  "--config", join_path(layout.configs, "eval.toml"), "--hf-checkpoint", checkpoint,
          "--out", out};
}

Arguments grpo_command(const Layout& layout, const std::string& run) {
  return {"train", "--config", join_path(layout.configs, "grpo.toml"), "--run-dir", run};
}

Arguments other_schedule() {
  return {"--threads",      "3",   "--max-running-requests", "23", "--admission",          "shuffle:7",
          "--prefix-cache", "off", "--chunked-prefill-size", "11", "--max-tokens-per-gpu", "700"};
}

Arguments verify_command(const std::string& a, const std::string& b) {
  return {"verify", a, b};
}

std::string shell_line(const std::string& program, const Arguments& arguments) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  const auto word = [&](const std::string& text) {
    if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  };
  std::string line = word(program);
  for (const std::string& argument : arguments) line += " " + word(argument);
  return line;
}

}  // namespace lockstep::demo
