// SPDX-License-Identifier: Apache-2.0
#include "loop/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/hf_folder.h"
#include "core/file.h"
#include "loop/machine.h"
#include "loop/prompts.h"
#include "model/model.h"
#include "tasks/registry.h"

namespace lockstep::loop {
namespace {

constexpr int64_t kFloat = sizeof(float);

struct Part {
  std::string name;
  int64_t bytes;
};

}  // namespace

Result<std::string> train_memory_text(const TrainConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto context, make_context(config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, checkpoint::read_config_json(config.hf_checkpoint));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const model::ModelConfig shape,
      model::parse_model_config(text, join_path(config.hf_checkpoint, checkpoint::kConfigFile)));
  LOCKSTEP_ASSIGN_OR_RETURN(const TextModel words,
                            load_text_model(config.hf_checkpoint, shape.eos_ids, shape.vocab));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const PromptSource prompts,
      PromptSource::load(config.prompt, tasks::default_prompt_suffix(config.rm_type), true, words));
  const model::ParameterTable table(shape);
  const int64_t arena = table.arena_size() * kFloat;

  const int64_t samples = config.rollout_batch_size * config.n_samples_per_prompt;
  const int64_t longest = prompts.longest_prompt() + config.sampling.max_new_tokens;
  const int64_t running = std::min(samples, config.machine.engine.max_running_requests);
  const int64_t pages = (longest + numerics::kKeyBlock - 1) / numerics::kKeyBlock + 1;
  const int64_t rows = std::max(longest, std::min(config.machine.max_tokens_per_gpu, samples * longest));
  // A leaf that one micro-batch can not hold keeps its chains in memory between micro-batches.
  const int64_t leaf_tokens = samples * longest / std::max<int64_t>(1, config.update.grad_leaves);
  const bool carries = samples * longest > config.machine.max_tokens_per_gpu && leaf_tokens > longest;
  const int64_t loss_rows = std::min(rows, samples * config.sampling.max_new_tokens);
  const model::MemoryNeeds needs = model::memory_needs(*context, config.profile, shape, rows, loss_rows,
                                                       config.machine.recompute_activations);
  int64_t kv = running * pages * needs.kv_page;
  if (config.machine.engine.max_total_tokens > 0) {
    kv = std::min(kv, (config.machine.engine.max_total_tokens + numerics::kKeyBlock - 1) /
                          numerics::kKeyBlock * needs.kv_page);
  }
  const bool bf16 = config.profile == model::Profile::kBf16;
  std::vector<Part> parts = {
      {bf16 ? "weights (bfloat16) and masters (float32)" : "weights (float32)", needs.weights},
      {"weights, packed for products", needs.packed},
      {"AdamW moments", 2 * arena},
      {"gradient image (int64)", 2 * arena},
      {"gradient chains between micro-batches", carries ? arena : 0},
      {"reference model", config.update.loss.kl_loss_coef != 0 ? needs.weights + needs.packed : 0},
      {fmt::format("keys and values of {} samples x {} tokens", running, longest), kv},
      {fmt::format("activations of {} tokens", rows), needs.activations},
      {"logits", needs.logits + running * shape.vocab * kFloat},
      {"tokenizer and data", int64_t{256} << 20},
  };
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

}  // namespace lockstep::loop
