// SPDX-License-Identifier: Apache-2.0
#include "loop/generate.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/log.h"
#include "loop/memory.h"
#include "loop/progress.h"
#include "model/load.h"

namespace lockstep::loop {

Result<std::vector<SampledPrompt>> generation_prompts(const GenerateConfig& config, const TextModel& text) {
  std::vector<SampledPrompt> out;
  for (size_t i = 0; i < config.prompts.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(Prompt prompt, text_prompt(config.prompts[i], config.prompt, text));
    out.push_back({static_cast<int64_t>(i), i, std::move(prompt)});
  }
  if (config.prompt.path.empty()) {
    if (out.empty()) return invalid("nothing to generate; give --prompt TEXT or --prompt-data PATH");
    return out;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const PromptSource source, PromptSource::load(config.prompt, "", false, text));
  for (int64_t row = 0; row < source.rows(); ++row) {
    out.push_back({row, static_cast<uint64_t>(out.size()), source.prompt(row)});
  }
  return out;
}

SamplingNeeds generation_needs(const GenerateConfig& config, const std::vector<SampledPrompt>& prompts) {
  int64_t longest = 0;
  for (const SampledPrompt& p : prompts)
    longest = std::max(longest, static_cast<int64_t>(p.prompt.ids.size()));
  return {config.prompt.path.empty() ? "--prompt" : config.prompt.path, longest, "--rollout-max-response-len",
          config.sampling};
}

Status check_generate_output(const GenerateConfig& config) {
  std::vector<std::string> inputs;
  if (!config.prompt.path.empty()) inputs.push_back(config.prompt.path);
  return check_output_file(config.out, inputs);
}

Status run_generate(const GenerateConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_generate_output(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const Start start,
                            start_run(config.hf_checkpoint, config.profile, config.machine));
  SampledBatch batch;
  batch.samples_per_prompt = config.n_samples_per_prompt;
  LOCKSTEP_ASSIGN_OR_RETURN(batch.prompts, generation_prompts(config, start.text));
  const SamplingNeeds needs = generation_needs(config, batch.prompts);
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(needs, start.shape, config.machine.engine));
  const int64_t longest = needs.longest_prompt + config.sampling.max_new_tokens;
  LOCKSTEP_RETURN_IF_ERROR(check_memory(
      start,
      generate_memory(config, start, static_cast<int64_t>(batch.prompts.size()) * config.n_samples_per_prompt,
                      longest)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto model,
                            model::load_model(config.hf_checkpoint, config.profile, start.device.choice));
  model->prepare(*start.context, longest);
  rollout::Engine engine(*model, config.machine.engine);
  const SampleContext sample{start.context.get(), &start.text, &engine, nullptr, model->config().vocab};
  const auto settings =
      generation_settings(sample, config.sampling, config.seed, numerics::Purpose::kRollout);
  log_info("sampling: temperature {}, top-p {}, top-k {}, seed {}; end tokens from {}",
           config.sampling.temperature, config.sampling.top_p, config.sampling.top_k, config.seed,
           start.text.end_source);
  ProgressLine progress;
  const auto begin = std::chrono::steady_clock::now();
  LOCKSTEP_RETURN_IF_ERROR(sample_batch(
      sample, settings,
      [&](const rollout::Progress& p) {
        progress.update(
            fmt::format("{}/{} samples, {:.0f} tokens/s", p.finished, p.total,
                        static_cast<double>(p.generated_tokens) / std::max(seconds_since(begin), 1e-3)));
      },
      &batch));
  const std::string lines = samples_jsonl(*start.context, batch);
  if (!config.out.empty()) return write_file_atomic(config.out, lines);
  fmt::print("{}", lines);
  return ok_status();
}

}  // namespace lockstep::loop
