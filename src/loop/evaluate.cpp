// SPDX-License-Identifier: Apache-2.0
#include "loop/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "ledger/json_text.h"
#include "loop/memory.h"
#include "model/load.h"
#include "tasks/registry.h"

namespace lockstep::loop {

Result<Evaluator> Evaluator::load(const EvalConfig& config, const PromptConfig& prompt,
                                  const std::string& default_suffix, const TextModel& text) {
  Evaluator out;
  out.config_ = config;
  for (const auto& [name, path] : config.data) {
    PromptConfig source_config = prompt;
    source_config.path = path;
    LOCKSTEP_ASSIGN_OR_RETURN(PromptSource source,
                              PromptSource::load(source_config, default_suffix, true, text));
    out.longest_prompt_ = std::max(out.longest_prompt_, source.longest_prompt());
    out.prompts_ += source.rows();
    out.most_prompts_ = std::max(out.most_prompts_, source.rows());
    out.sources_.emplace_back(name, std::move(source));
  }
  return out;
}

Result<std::vector<EvalResult>> Evaluator::run(const SampleContext& sample, uint64_t seed, int64_t updates,
                                               ProgressLine* progress) const {
  std::vector<EvalResult> results;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    EvalResult result;
    result.name = sources_[i].first;
    result.batch.samples_per_prompt = config_.samples_per_prompt;
    const int64_t rows = sources_[i].second.rows();
    for (int64_t row = 0; row < rows; ++row) {
      result.batch.prompts.push_back(
          {row, static_cast<uint64_t>(updates * rows + row), sources_[i].second.prompt(row)});
    }
    const auto settings = generation_settings(sample, config_.sampling, seed, numerics::Purpose::kEval);
    LOCKSTEP_RETURN_IF_ERROR(sample_batch(
        sample, settings,
        [&](const rollout::Progress& p) {
          if (progress == nullptr) return;
          const double elapsed = std::max(seconds_since(start), 1e-3);
          const double left = p.finished > 0 ? elapsed * static_cast<double>(p.total - p.finished) /
                                                   static_cast<double>(p.finished)
                                             : 0;
          progress->update(fmt::format("eval {}: {}/{} samples, {:.0f} tokens/s, {} left", result.name,
                                       p.finished, p.total, static_cast<double>(p.generated_tokens) / elapsed,
                                       duration_text(left)));
        },
        &result.batch));
    result.summary = summarise(result.batch);
    result.seconds = seconds_since(start);
    results.push_back(std::move(result));
  }
  return results;
}

std::string Evaluator::identity_json() const {
  std::vector<std::string> items;
  for (const auto& [name, source] : sources_) {
    items.push_back(ledger::JsonObject().add("name", name).add_json("data", source.identity_json()).text());
  }
  return ledger::json_array(items);
}

Status check_eval_output(const EvalCommandConfig& config) {
  std::vector<std::string> inputs;
  for (const auto& [name, path] : config.eval.data) inputs.push_back(path);
  return check_output_file(config.out, inputs);
}

Status run_eval(const EvalCommandConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_eval_output(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto grader, tasks::make_grader(config.rm_type));
  LOCKSTEP_ASSIGN_OR_RETURN(const Start start,
                            start_run(config.hf_checkpoint, config.profile, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Evaluator evaluator,
      Evaluator::load(config.eval, config.prompt, tasks::default_prompt_suffix(config.rm_type), start.text));
  if (evaluator.empty()) return invalid("--eval-prompt-data is missing; give NAME PATH");
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(evaluator.needs(), start.shape, config.machine.engine));
  LOCKSTEP_RETURN_IF_ERROR(check_memory(start, eval_memory(config, start, evaluator)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto model,
                            model::load_model(config.hf_checkpoint, config.profile, start.device.choice));
  model->prepare(*start.context, std::min(model->config().max_positions,
                                          evaluator.longest_prompt() + config.eval.sampling.max_new_tokens));
  rollout::Engine engine(*model, config.machine.engine);
  const SampleContext sample{start.context.get(), &start.text, &engine, grader.get(), model->config().vocab};
  ProgressLine progress;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<EvalResult> results,
                            evaluator.run(sample, config.seed, 0, &progress));
  std::string lines;
  for (const EvalResult& result : results) {
    ledger::JsonObject line;
    line.add("name", result.name)
        .add("prompts", static_cast<int64_t>(result.batch.prompts.size()))
        .add("samples", static_cast<int64_t>(result.batch.completions.size()))
        .add("reward_mean", result.summary.reward_mean)
        .add("response_length_mean", result.summary.response_length_mean)
        .add("truncated", result.summary.truncated);
    fmt::print("{}\n", line.text());
    progress.line(
        fmt::format("eval {}: reward {:.4f} over {} samples, {} tokens in {} ({:.0f} tokens/s)", result.name,
                    result.summary.reward_mean, result.batch.completions.size(),
                    result.summary.response_tokens, duration_text(result.seconds),
                    static_cast<double>(result.summary.response_tokens) / std::max(result.seconds, 1e-3)));
    lines += samples_jsonl(*start.context, result.batch);
  }
  return config.out.empty() ? ok_status() : write_file_atomic(config.out, lines);
}

}  // namespace lockstep::loop
