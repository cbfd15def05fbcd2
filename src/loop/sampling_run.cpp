// SPDX-License-Identifier: Apache-2.0
#include "loop/sampling_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "checkpoint/hf_folder.h"
#include "core/file.h"
#include "data/jsonl.h"
#include "ledger/json_text.h"
#include "ledger/ledger.h"
#include "loop/saved_state.h"

namespace lockstep::loop {
namespace {

std::string log_prob_bits(const std::vector<float>& values) {
  std::vector<std::string> items;
  items.reserve(values.size());
  for (const float v : values) items.push_back(fmt::format("\"{:08x}\"", std::bit_cast<uint32_t>(v)));
  return ledger::json_array(items);
}

std::string id_list(const std::vector<int32_t>& ids) {
  std::vector<std::string> items;
  items.reserve(ids.size());
  for (const int32_t id : ids) items.push_back(std::to_string(id));
  return ledger::json_array(items);
}

}  // namespace

Status check_sampling_needs(const SamplingNeeds& needs, const model::ModelConfig& model,
                            const rollout::EngineConfig& engine) {
  for (const int32_t id : needs.sampling.stop_token_ids) {
    if (id >= model.vocab) {
      return invalid("--rollout-stop-token-ids {}: is no token of the model, whose vocab_size is {}", id,
                     model.vocab);
    }
  }
  const int64_t limit = model.max_positions;
  const int64_t response = needs.sampling.max_new_tokens;
  const int64_t tokens = needs.longest_prompt + response;
  if (tokens > limit) {
    return invalid(
        "{} {}: with the longest prompt of {} ({} tokens) it exceeds max_position_embeddings {}; {} at most",
        needs.length_option, response, needs.data, needs.longest_prompt, limit,
        std::max<int64_t>(0, limit - needs.longest_prompt));
  }
  return rollout::check_cache(engine, tokens);
}

namespace {

// Files of checkpoints and runs, and configs: what another command reads, or nobody can make again.
bool is_kept_file(const std::string& folder, const std::string& name) {
  const auto ends_with = [&](std::string_view end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  if (ends_with(".toml")) return true;
  const auto has = [](const std::string& in, const char* file) { return path_exists(join_path(in, file)); };
  if (has(folder, ledger::kLedgerFile) || has(folder, checkpoint::kConfigFile)) {
    return ends_with(".safetensors") || ends_with(".json") || ends_with(".txt") || name == "SHA256SUMS" ||
           name == ledger::kLedgerFile || name == kMetricsFile || name == kEnvironmentFile;
  }
  return base_name(folder) == kSamplesFolder && has(parent_path(folder), ledger::kLedgerFile);
}

}  // namespace

Status check_output_file(const std::string& out, const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  if (out.empty()) return ok_status();
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  if (fs::is_directory(status)) return invalid("--out {}: is a folder; name a file", out);
  if (fs::exists(status) && !fs::is_regular_file(status))
    return invalid("--out {}: is no regular file; name another", out);
  const std::string folder = parent_path(out);
  if (!is_directory(folder))
    return invalid("--out {}: there is no folder {}; make it or name another file", out, folder);
  LOCKSTEP_RETURN_IF_ERROR(check_output_folder(folder));
  for (const std::string& input : inputs) {
    LOCKSTEP_ASSIGN_OR_RETURN(const data::DataPath path, data::DataPath::parse(input));
    if (fs::equivalent(out, path.path, error))
      return invalid("--out {}: is the data that is read; name another file", out);
  }
  if (!fs::exists(status)) return ok_status();
  const fs::path real = fs::canonical(out, error);
  if (!error && is_kept_file(real.parent_path().string(), real.filename().string()))
    return invalid("--out {}: is a config, or a file of a checkpoint or a run; name another file", out);
  return ok_status();
}

rollout::GenerationSettings generation_settings(const SampleContext& sample,
                                                const rollout::SamplingConfig& sampling, uint64_t seed,
                                                numerics::Purpose purpose) {
  rollout::GenerationSettings settings;
  settings.sampling = sampling;
  settings.seed = seed;
  settings.purpose = purpose;
  settings.end_ids = sample.text->end_ids;
  settings.sampleable = std::min(sample.vocab, sample.text->tokenizer.token_limit());
  const data::Tokenizer* tokenizer = &sample.text->tokenizer;
  settings.token_bytes = [tokenizer](int32_t id) { return tokenizer->token_bytes(id); };
  return settings;
}

Status sample_batch(const SampleContext& sample, const rollout::GenerationSettings& settings,
                    const std::function<void(const rollout::Progress&)>& progress, SampledBatch* batch) {
  std::vector<rollout::Request> requests;
  for (const SampledPrompt& prompt : batch->prompts) {
    for (int64_t s = 0; s < batch->samples_per_prompt; ++s) {
      requests.push_back({prompt.prompt.ids, prompt.ordinal, static_cast<uint32_t>(s)});
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(batch->completions,
                            sample.engine->generate(*sample.context, requests, settings, progress));
  batch->responses.resize(requests.size());
  batch->rewards.assign(requests.size(), 0.0);
  batch->graded = sample.grader != nullptr;
  sample.context->parallel_for(static_cast<int64_t>(requests.size()), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    std::vector<int32_t> ids = batch->completions[i].tokens;
    const bool ended = !ids.empty() && std::find(settings.end_ids.begin(), settings.end_ids.end(),
                                                 ids.back()) != settings.end_ids.end();
    if (ended) ids.pop_back();
    batch->responses[i] = sample.text->tokenizer.decode(ids);
    if (sample.grader != nullptr)
      batch->rewards[i] = sample.grader->grade(batch->responses[i], batch->prompt_of(i).prompt.label);
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!std::isfinite(batch->rewards[i])) {
      return stopped("data row {}: the reward is not a finite number; check --rm-type and the label",
                     batch->prompt_of(i).row);
    }
  }
  return ok_status();
}

std::string samples_jsonl(const cpu::Context& context, const SampledBatch& batch) {
  std::vector<std::string> lines(batch.completions.size());
  context.parallel_for(static_cast<int64_t>(lines.size()), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    const SampledPrompt& prompt = batch.prompt_of(i);
    const rollout::Completion& completion = batch.completions[i];
    ledger::JsonObject line;
    line.add("row", prompt.row)
        .add("ordinal", prompt.ordinal)
        .add("sample", static_cast<int64_t>(i) % batch.samples_per_prompt);
    if (batch.graded) line.add("reward", batch.rewards[i]).add("label", prompt.prompt.label);
    line.add("finish", completion.finish == rollout::FinishReason::kStop ? "stop" : "length")
        .add("response", batch.responses[i])
        .add_json("prompt_ids", id_list(prompt.prompt.ids))
        .add_json("response_ids", id_list(completion.tokens))
        .add_json("log_prob_bits", log_prob_bits(completion.log_probs));
    lines[i] = line.text() + "\n";
  });
  size_t bytes = 0;
  for (const std::string& line : lines) bytes += line.size();
  std::string out;
  out.reserve(bytes);
  for (std::string& line : lines) {
    out += line;
    line = std::string();
  }
  return out;
}

SampleSummary summarise(const SampledBatch& batch) {
  SampleSummary out;
  const size_t n = batch.completions.size();
  if (n == 0) return out;
  for (size_t i = 0; i < n; ++i) {
    out.reward_mean += batch.rewards[i];
    out.response_tokens += static_cast<int64_t>(batch.completions[i].tokens.size());
    out.truncated += batch.completions[i].finish == rollout::FinishReason::kLength ? 1 : 0;
  }
  const size_t group = static_cast<size_t>(batch.samples_per_prompt);
  for (size_t p = 0; p < batch.prompts.size(); ++p) {
    const auto first = batch.rewards.begin() + static_cast<std::ptrdiff_t>(p * group);
    out.zero_spread_groups +=
        std::all_of(first, first + static_cast<std::ptrdiff_t>(group), [&](double r) { return r == *first; })
            ? 1
            : 0;
  }
  const double count = static_cast<double>(n);
  out.reward_mean /= count;
  out.response_length_mean = static_cast<double>(out.response_tokens) / count;
  out.truncated /= count;
  out.zero_spread_groups /= static_cast<double>(batch.prompts.size());
  return out;
}

}  // namespace lockstep::loop
