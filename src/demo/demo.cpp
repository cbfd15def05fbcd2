// SPDX-License-Identifier: Apache-2.0
#include "demo/demo.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file.h"
#include "core/log.h"
#include "core/sha256.h"
#include "demo/model_files.h"
#include "demo/process.h"

namespace lockstep::demo {
namespace {

constexpr int kLogLines = 15;

struct Score {
  double accuracy = 0;
  int64_t problems = 0;
};

class Demo {
 public:
  explicit Demo(const DemoConfig& config)
      : config_(config),
        recipe_(config.recipe),
        layout_(config.out),
        start_(std::chrono::steady_clock::now()) {}

  Status run() {
    LOCKSTEP_RETURN_IF_ERROR(claim_folder());
    LOCKSTEP_RETURN_IF_ERROR(as_failure(write_inputs()));
    say("{} problems to train on, {} unseen ones to test on; {} rows for the warm-up", train_problems_,
        recipe_.test_problems, recipe_.warmup.batches * recipe_.warmup.batch_size);
    LOCKSTEP_RETURN_IF_ERROR(part("init", init_command(recipe_, layout_)));
    say("warm-up: {} supervised steps", recipe_.warmup.batches);
    LOCKSTEP_RETURN_IF_ERROR(part("sft", sft_command(layout_)));
    LOCKSTEP_ASSIGN_OR_RETURN(const Score before,
                              evaluate("before", last_checkpoint(layout_.sft_run, recipe_.warmup.batches)));
    say("accuracy at temperature 1 before GRPO: {:.3f}", before.accuracy);
    say("run A: {} GRPO steps of {} x {}", recipe_.steps, recipe_.prompts, recipe_.samples);
    LOCKSTEP_RETURN_IF_ERROR(part("run-a", grpo_command(layout_, layout_.run_a)));
    LOCKSTEP_ASSIGN_OR_RETURN(const Score after,
                              evaluate("after", last_checkpoint(layout_.run_a, recipe_.steps)));
    say("accuracy after GRPO: {:.3f}", after.accuracy);
    LOCKSTEP_RETURN_IF_ERROR(run_b());
    LOCKSTEP_RETURN_IF_ERROR(part("verify", verify_command(layout_.run_a, layout_.run_b)));
    say("verify: run A and run B are the same, bit for bit");
    return conclude(before, after);
  }

 private:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    config_.print(
        fmt::format("demo: {:5.1f} s  {}", seconds(), fmt::format(format, std::forward<Args>(args)...)));
  }
  // After the folder is ours every failure is the answer no.
  static Status as_failure(const Status& status) {
    return status.ok() ? status : Status(StatusCode::kDifferent, status.message());
  }

  Status claim_folder() const {
    if (path_exists(config_.out)) {
      if (!is_directory(config_.out)) {
        return invalid("{}: is a file; name another folder with --out", config_.out);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const auto names, list_directory(config_.out));
      if (!names.empty()) {
        return invalid(
            "{}: is not empty (an earlier demo?); remove it, or name another folder: lockstep demo --out "
            "FOLDER",
            config_.out);
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(check_output_folder(config_.out).with_context("--out"));
    const Status made = make_directories(config_.out);
    return made.ok() ? made : invalid("{}", made.message());
  }

  Status write_inputs() {
    for (const std::string* folder :
         {&layout_.tokenizer, &layout_.data, &layout_.configs, &layout_.logs, &layout_.eval}) {
      LOCKSTEP_RETURN_IF_ERROR(make_directories(*folder));
    }
    const ProblemSet problems = make_problems(recipe_.seed, recipe_.test_problems);
    train_problems_ = static_cast<int64_t>(problems.train.size());
    const std::pair<std::string, std::string> files[] = {
        {layout_.model_config, model_config_json()},
        {join_path(layout_.tokenizer, "tokenizer.json"), tokenizer_json()},
        {join_path(layout_.tokenizer, "tokenizer_config.json"), tokenizer_config_json()},
        {layout_.train_data, problems_jsonl(problems.train)},
        {layout_.test_data, problems_jsonl(problems.test)},
        {layout_.sft_data, warmup_jsonl(make_warmup_rows(recipe_.seed, problems, recipe_.warmup))},
        {join_path(layout_.configs, "sft.toml"), sft_toml(recipe_, layout_)},
        {join_path(layout_.configs, "grpo.toml"), grpo_toml(recipe_, layout_)},
        {join_path(layout_.configs, "eval.toml"), eval_toml(recipe_, layout_)}};
    for (const auto& [path, text] : files) LOCKSTEP_RETURN_IF_ERROR(write_file_atomic(path, text));
    return ok_status();
  }

  Status failure(const std::string& stage, const Ending& ending) const {
    const std::string log = layout_.log(stage);
    log_line(last_lines(log, kLogLines));
    return different("demo: {} failed ({}); its log: {}", stage, ending.text(), log);
  }

  Result<Process> start(const std::string& stage, const Arguments& arguments) const {
    auto process = Process::start(config_.program, arguments, layout_.log(stage));
    if (!process.ok()) return as_failure(process.status());
    return process;
  }

  Status part(const std::string& stage, const Arguments& arguments) const {
    LOCKSTEP_ASSIGN_OR_RETURN(Process process, start(stage, arguments));
    const Ending ending = process.wait();
    return ending.ok() ? ok_status() : failure(stage, ending);
  }

  // The mean reward of the rows that eval wrote: counted here, not taken from its output.
  Result<Score> evaluate(const std::string& name, const std::string& checkpoint) const {
    const std::string out = join_path(layout_.eval, name + ".jsonl");
    LOCKSTEP_RETURN_IF_ERROR(part("eval-" + name, eval_command(layout_, checkpoint, out)));
    const Result<std::string> text = read_file(out);
    if (!text.ok()) return as_failure(text.status());
    Score score;
    for (size_t at = 0; at < text.value().size();) {
      const size_t end = std::min(text.value().find('\n', at), text.value().size());
      const auto row = nlohmann::json::parse(text.value().substr(at, end - at), nullptr, false);
      if (!row.is_object() || !row.contains("reward") || !row["reward"].is_number()) {
        return different("demo: {}: row {} has no reward", out, score.problems + 1);
      }
      score.accuracy += row["reward"].get<double>();
      ++score.problems;
      at = end + 1;
    }
    if (score.problems != recipe_.test_problems) {
      return different("demo: {}: {} rows, not {}", out, score.problems, recipe_.test_problems);
    }
    score.accuracy /= static_cast<double>(score.problems);
    return score;
  }

  // The step of the last whole line of a run's ledger.
  static std::optional<int64_t> ledger_step(const std::string& run) {
    const std::string tail = last_lines(join_path(run, "ledger.jsonl"), 2);
    for (size_t end = tail.rfind('\n'); end != std::string::npos && end > 0;) {
      const size_t before = tail.rfind('\n', end - 1);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      const auto line = nlohmann::json::parse(tail.substr(begin, end - begin), nullptr, false);
      if (line.is_object() && line.contains("step") && line["step"].is_number_integer()) {
        return line["step"].get<int64_t>();
      }
      end = before;
    }
    return std::nullopt;
  }

  Status run_b() const {
    Arguments arguments = grpo_command(layout_, layout_.run_b);
    for (const std::string& argument : other_schedule()) arguments.push_back(argument);
    say("run B: the same with {}", shell_line("", other_schedule()).substr(3));
    LOCKSTEP_ASSIGN_OR_RETURN(Process process, start("run-b", arguments));
    std::optional<int64_t> step;
    const Ending ending = process.kill_when([&] {
      step = ledger_step(layout_.run_b);
      return step.value_or(-1) >= recipe_.kill_step;
    });
    if (ending.signal == 0) return failure("run-b", ending);
    say("run B: killed (signal {}) in step {}; started again", ending.signal, step.value_or(-1));
    return part("run-b", arguments);
  }

  Status conclude(const Score& before, const Score& after) const {
    const auto sums = [&](const std::string& run) {
      return sha256_file(join_path(last_checkpoint(run, recipe_.steps), "SHA256SUMS"));
    };
    const Result<std::string> sum_a = sums(layout_.run_a);
    const Result<std::string> sum_b = sums(layout_.run_b);
    for (const auto* sum : {&sum_a, &sum_b}) LOCKSTEP_RETURN_IF_ERROR(as_failure(sum->status()));
    if (sum_a.value() != sum_b.value()) {
      return different("demo: the final checkpoints differ: {} and {}", sum_a.value(), sum_b.value());
    }
    const std::string accuracy = fmt::format("accuracy {:.3f} -> {:.3f} on {} unseen problems",
                                             before.accuracy, after.accuracy, after.problems);
    if (before.accuracy < recipe_.least_before || before.accuracy > recipe_.most_before ||
        after.accuracy - before.accuracy < recipe_.least_gain) {
      return different(
          "demo: {}; expected {:.2f} to {:.2f} before and at least {:.2f} more after (runs identical; "
          "checkpoint sha256 {})",
          accuracy, recipe_.least_before, recipe_.most_before, recipe_.least_gain, sum_a.value());
    }
    const std::string& program = config_.shown_program;
    const std::string run_c = join_path(layout_.folder, "run-c");
    const std::string run_d = join_path(layout_.folder, "run-d");
    Arguments changed = grpo_command(layout_, run_d);
    changed.insert(changed.end(), {"--lr", "1e-4"});
    say("done. Rerun:  {}", shell_line(program, grpo_command(layout_, run_c)));
    config_.print("demo: Verify: " + shell_line(program, verify_command(layout_.run_a, run_c)));
    config_.print("demo: Change: " + shell_line(program, changed));
    config_.print(fmt::format("demo: {}; runs identical; checkpoint sha256 {}", accuracy, sum_a.value()));
    return ok_status();
  }

  const DemoConfig& config_;
  const Recipe& recipe_;
  const Layout layout_;
  const std::chrono::steady_clock::time_point start_;
  int64_t train_problems_ = 0;
};

}  // namespace

Status run_demo(const DemoConfig& config) {
  return Demo(config).run();
}

}  // namespace lockstep::demo
