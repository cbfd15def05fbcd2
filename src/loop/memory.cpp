// SPDX-License-Identifier: Apache-2.0
#include "loop/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/hf_folder.h"
#include "core/file.h"
#include "loop/evaluate.h"
#include "loop/generate.h"
#include "loop/machine.h"
#include "loop/prompts.h"
#include "model/model.h"
#include "tasks/registry.h"

namespace lockstep::loop {
namespace {

constexpr int64_t kFloat = sizeof(float);
// A token of a finished sample: its id and log-probability in the sample, in the batch of the update and in
// the share of one update, and their text in the line of the samples' file.
constexpr int64_t kSampleToken = 96;

struct Part {
  std::string name;
  int64_t bytes;
};

// What is read of a checkpoint folder.
struct Checkpoint {
  std::unique_ptr<cpu::Context> context;
  model::ModelConfig shape;
  TextModel text;
};

Result<Checkpoint> open_checkpoint(const std::string& folder, const MachineConfig& machine) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto context, make_context(machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, checkpoint::read_config_json(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(model::ModelConfig shape,
                            model::parse_model_config(json, join_path(folder, checkpoint::kConfigFile)));
  LOCKSTEP_ASSIGN_OR_RETURN(TextModel text, load_text_model(folder, shape.eos_ids, shape.vocab));
  return Checkpoint{std::move(context), std::move(shape), std::move(text)};
}

// Samples that are drawn together, of `longest` tokens at most.
struct Sampling {
  int64_t samples = 0;       // that the engine is given at once
  int64_t kept_samples = 0;  // that are there at the end
  int64_t longest = 0;

  int64_t running(const rollout::EngineConfig& engine) const {
    return std::min(samples, engine.max_running_requests);
  }
  int64_t kept_bytes() const { return kept_samples * longest * kSampleToken; }
};

int64_t kv_bytes(const Sampling& sampling, const rollout::EngineConfig& engine, int64_t page) {
  const int64_t pages = (sampling.longest + numerics::kKeyBlock - 1) / numerics::kKeyBlock + 1;
  const int64_t bytes = sampling.running(engine) * pages * page;
  if (engine.max_total_tokens <= 0) return bytes;
  return std::min(bytes, (engine.max_total_tokens + numerics::kKeyBlock - 1) / numerics::kKeyBlock * page);
}

Part kv_part(const Sampling& sampling, const rollout::EngineConfig& engine, int64_t page) {
  return {
      fmt::format("keys and values of {} samples x {} tokens", sampling.running(engine), sampling.longest),
      kv_bytes(sampling, engine, page)};
}

// An update of `samples` samples of `longest` tokens at most.
struct Training {
  int64_t samples = 0;
  int64_t longest = 0;
  int64_t loss_rows = 0;  // at most; those of a micro-batch are fewer
  int64_t leaves = 1;
};

// The parts of a model in training; *needs: what its micro-batches take.
std::vector<Part> training_parts(const Checkpoint& from, model::Profile profile, const MachineConfig& machine,
                                 const Training& training, model::MemoryNeeds* needs) {
  const int64_t arena = model::ParameterTable(from.shape).arena_size() * kFloat;
  const int64_t tokens = training.samples * training.longest;
  const int64_t rows = std::max(training.longest, std::min(machine.max_tokens_per_gpu, tokens));
  // A leaf that one micro-batch can not hold keeps its chains in memory between micro-batches.
  const int64_t leaf_tokens = tokens / std::max<int64_t>(1, training.leaves);
  const bool carries = tokens > machine.max_tokens_per_gpu && leaf_tokens > training.longest;
  *needs = model::memory_needs(*from.context, profile, from.shape, rows, std::min(rows, training.loss_rows),
                               machine.recompute_activations);
  const bool bf16 = profile == model::Profile::kBf16;
  return {
      {bf16 ? "weights (bfloat16) and masters (float32)" : "weights (float32)", needs->weights},
      {"weights, packed for products", needs->packed},
      {"AdamW moments", 2 * arena},
      {"gradient image (int64)", 2 * arena},
      {"gradient chains between micro-batches", carries ? arena : 0},
      {fmt::format("activations of {} tokens", rows), needs->activations},
  };
}

std::string table(const std::vector<Part>& parts) {
  std::string out = "# memory, at most\n";
  int64_t sum = 0;
  for (const Part& part : parts) {
    if (part.bytes == 0) continue;
    sum += part.bytes;
    out += fmt::format("#   {:9.3f} GiB  {}\n", static_cast<double>(part.bytes) / 0x1p30, part.name);
  }
  out += fmt::format("#   {:9.3f} GiB  in all\n", static_cast<double>(sum) / 0x1p30);
  return out;
}

Part common_part() {
  return {"tokenizer and data", int64_t{256} << 20};
}

std::string sampling_text(const Checkpoint& from, model::Profile profile, const MachineConfig& machine,
                          const Sampling& sampling) {
  const rollout::EngineConfig& engine = machine.engine;
  const int64_t running = sampling.running(engine);
  const int64_t rows = running + engine.chunked_prefill_size;
  const model::MemoryNeeds needs =
      model::memory_needs(*from.context, profile, from.shape, rows, running, true);
  const bool bf16 = profile == model::Profile::kBf16;
  return table({{bf16 ? "weights (bfloat16) and masters (float32)" : "weights (float32)", needs.weights},
                {"weights, packed for products", needs.packed},
                kv_part(sampling, engine, needs.kv_page),
                {fmt::format("activations of {} tokens", rows), needs.activations},
                {"logits", running * from.shape.vocab * kFloat},
                {fmt::format("{} samples", sampling.kept_samples), sampling.kept_bytes()},
                common_part()});
}

}  // namespace

Result<std::string> train_memory_text(const TrainConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Checkpoint from, open_checkpoint(config.hf_checkpoint, config.machine));
  const std::string suffix = tasks::default_prompt_suffix(config.rm_type);
  LOCKSTEP_ASSIGN_OR_RETURN(const PromptSource prompts,
                            PromptSource::load(config.prompt, suffix, true, from.text));
  LOCKSTEP_ASSIGN_OR_RETURN(const Evaluator evaluator,
                            Evaluator::load(config.eval, config.prompt, suffix, from.text));
  const rollout::EngineConfig& engine = config.machine.engine;
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(
      {config.prompt.path, prompts.longest_prompt(), "--rollout-max-response-len", config.sampling},
      from.shape, engine));
  const int64_t samples = config.rollout_batch_size * config.n_samples_per_prompt;
  const int64_t longest = prompts.longest_prompt() + config.sampling.max_new_tokens;
  const Sampling rollout{samples, samples, longest};
  Sampling eval;
  if (!evaluator.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(evaluator.needs(), from.shape, engine));
    eval = {evaluator.most_samples(), evaluator.samples(),
            evaluator.longest_prompt() + config.eval.sampling.max_new_tokens};
  }
  model::MemoryNeeds needs;
  std::vector<Part> parts = training_parts(
      from, config.profile, config.machine,
      {samples, longest, samples * config.sampling.max_new_tokens, config.update.grad_leaves}, &needs);
  parts.push_back(
      {"reference model", config.update.loss.kl_loss_coef != 0 ? needs.weights + needs.packed : 0});
  // Rollout and evaluation use one cache, which keeps the size of the larger.
  const bool eval_larger = kv_bytes(eval, engine, needs.kv_page) > kv_bytes(rollout, engine, needs.kv_page);
  parts.push_back(kv_part(eval_larger ? eval : rollout, engine, needs.kv_page));
  const int64_t running = std::max(rollout.running(engine), eval.running(engine));
  parts.push_back({"logits", needs.logits + running * from.shape.vocab * kFloat});
  const Sampling& kept = eval.kept_bytes() > rollout.kept_bytes() ? eval : rollout;
  parts.push_back(
      {fmt::format("{} samples of {}", kept.kept_samples, &kept == &eval ? "an evaluation" : "a step"),
       kept.kept_bytes()});
  parts.push_back(common_part());
  return table(parts);
}

Result<std::string> sft_memory_text(const SftConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Checkpoint from, open_checkpoint(config.hf_checkpoint, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const PromptSource source,
                            PromptSource::load_demonstrations(config.prompt, from.text));
  int64_t longest = 0;
  int64_t longest_response = 0;
  int64_t tokens = 0;
  for (int64_t row = 0; row < source.rows(); ++row) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Demonstration pair, source.demonstration(row));
    const auto response = static_cast<int64_t>(pair.response_ids.size());
    const int64_t length = static_cast<int64_t>(pair.prompt_ids.size()) + response;
    if (length > from.shape.max_positions) {
      return invalid("{}: row {} has {} tokens, more than max_position_embeddings {}; shorten or drop it",
                     config.prompt.path, row, length, from.shape.max_positions);
    }
    longest = std::max(longest, length);
    longest_response = std::max(longest_response, response);
    tokens += length;
  }
  model::MemoryNeeds needs;
  std::vector<Part> parts = training_parts(
      from, config.profile, config.machine,
      {config.batch_size, longest, config.batch_size * longest_response, config.update.grad_leaves}, &needs);
  parts.push_back({"logits", needs.logits});
  parts.push_back({fmt::format("{} rows, and those of a step", source.rows()),
                   (tokens + config.batch_size * longest) * static_cast<int64_t>(sizeof(int32_t))});
  parts.push_back(common_part());
  return table(parts);
}

Result<std::string> eval_memory_text(const EvalCommandConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_eval_output(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const Checkpoint from, open_checkpoint(config.hf_checkpoint, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Evaluator evaluator,
      Evaluator::load(config.eval, config.prompt, tasks::default_prompt_suffix(config.rm_type), from.text));
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(evaluator.needs(), from.shape, config.machine.engine));
  return sampling_text(from, config.profile, config.machine,
                       {evaluator.most_samples(), evaluator.samples(),
                        evaluator.longest_prompt() + config.eval.sampling.max_new_tokens});
}

Result<std::string> generate_memory_text(const GenerateConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_generate_output(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const Checkpoint from, open_checkpoint(config.hf_checkpoint, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SampledPrompt> prompts, generation_prompts(config, from.text));
  const SamplingNeeds needs = generation_needs(config, prompts);
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(needs, from.shape, config.machine.engine));
  const int64_t samples = static_cast<int64_t>(prompts.size()) * config.n_samples_per_prompt;
  return sampling_text(from, config.profile, config.machine,
                       {samples, samples, needs.longest_prompt + config.sampling.max_new_tokens});
}

}  // namespace lockstep::loop
