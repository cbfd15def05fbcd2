// SPDX-License-Identifier: Apache-2.0
#include "loop/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/machine_memory.h"
#include "loop/generate.h"
#include "loop/prompts.h"
#include "model/model.h"
#include "numerics/constants.h"
#include "tasks/registry.h"

namespace lockstep::loop {
namespace {

using model::MemoryPart;

constexpr int64_t kFloat = sizeof(float);
// A token of a finished sample: its id and log-probability in the sample, in the batch of the update and in
// the share of one update, and their text in the line of the samples' file.
constexpr int64_t kSampleToken = 96;

// Samples that are drawn together, of `longest` tokens at most.
struct Sampling {
  int64_t samples = 0;       // that the engine is given at once
  int64_t kept_samples = 0;  // that are there at the end
  int64_t longest = 0;

  int64_t running(const rollout::EngineConfig& engine) const {
    return std::min(samples, engine.max_running_requests);
  }
  int64_t kept_bytes() const { return kept_samples * longest * kSampleToken; }
  // Pages of keys and values.
  int64_t pages(const rollout::EngineConfig& engine) const {
    const int64_t each = (longest + numerics::kKeyBlock - 1) / numerics::kKeyBlock + 1;
    const int64_t all = running(engine) * each;
    if (engine.max_total_tokens <= 0) return all;
    return std::min(all, (engine.max_total_tokens + numerics::kKeyBlock - 1) / numerics::kKeyBlock);
  }
};

MemoryPart kv_part(const Sampling& sampling, const rollout::EngineConfig& engine, int64_t page) {
  return {
      fmt::format("keys and values of {} samples x {} tokens", sampling.running(engine), sampling.longest),
      sampling.pages(engine) * page};
}

MemoryPart kept_part(const Sampling& sampling, const char* of) {
  return {fmt::format("{} samples{}", sampling.kept_samples, of), sampling.kept_bytes()};
}

MemoryPart common_part() {
  return {"tokenizer and data", int64_t{256} << 20};
}

// Rollout and evaluation use one cache, which keeps the size of the larger.
const Sampling& larger(const Sampling& a, const Sampling& b, const rollout::EngineConfig& engine) {
  return b.pages(engine) > a.pages(engine) ? b : a;
}

// An update of `samples` samples of `longest` tokens at most.
struct Training {
  int64_t samples = 0;
  int64_t longest = 0;
  int64_t loss_rows = 0;  // at most; those of a micro-batch are fewer
  int64_t leaves = 1;

  int64_t pad(model::Profile profile) const {
    return profile == model::Profile::kBf16 ? numerics::kTokenPad : 1;
  }
  int64_t sample_rows(model::Profile profile) const {
    return (longest + pad(profile) - 1) / pad(profile) * pad(profile);
  }
  int64_t rows(model::Profile profile, const MachineConfig& machine) const {
    const int64_t one = sample_rows(profile);
    return std::max(one, std::min(machine.max_tokens_per_gpu, samples * one));
  }
  // A sample counts for the leaf that its middle lies in.
  int64_t leaf_rows(model::Profile profile) const {
    const int64_t one = sample_rows(profile);
    return std::min(samples * one, samples * one / std::max<int64_t>(1, leaves) + one);
  }
  // A leaf that one micro-batch can not hold keeps its chains in memory between micro-batches.
  bool cuts_leaves(model::Profile profile, const MachineConfig& machine) const {
    const int64_t most = rows(profile, machine);
    return samples * sample_rows(profile) > most && leaf_rows(profile) > most;
  }
};

bool is_bf16(model::Profile profile) {
  return profile == model::Profile::kBf16;
}

// The parts of a model in training on the CPU; *needs: what its micro-batches take.
std::vector<MemoryPart> training_parts(const Start& start, model::Profile profile,
                                       const MachineConfig& machine, const Training& training,
                                       model::MemoryNeeds* needs) {
  const int64_t arena = model::ParameterTable(start.shape).arena_size() * kFloat;
  const int64_t rows = training.rows(profile, machine);
  *needs = model::memory_needs(*start.context, profile, start.shape, rows, std::min(rows, training.loss_rows),
                               machine.recompute_activations);
  return {
      {is_bf16(profile) ? "weights (bfloat16) and masters (float32)" : "weights (float32)", needs->weights},
      {"weights, packed for products", needs->packed},
      {"AdamW moments", 2 * arena},
      {"gradient image (int64)", 2 * arena},
      {"gradient chains between micro-batches", training.cuts_leaves(profile, machine) ? arena : 0},
      {fmt::format("activations of {} tokens", rows), needs->activations},
  };
}

void add_sampling(const Sampling& sampling, const rollout::EngineConfig& engine, model::GpuWork* work) {
  work->running = sampling.running(engine);
  work->step_rows = work->running + 1 + engine.chunked_prefill_size;  // and one that fills a prefix
  work->longest = work->keys = sampling.longest;
  work->kv_pages = sampling.pages(engine);
}

void add_training(const Training& training, model::Profile profile, const MachineConfig& machine,
                  model::GpuWork* work) {
  work->trains = true;
  work->rows = training.rows(profile, machine);
  work->leaf_rows = training.leaf_rows(profile);
  work->cut_leaves = training.cuts_leaves(profile, machine);
  work->recompute = machine.recompute_activations;
}

std::string sampling_remedy(const rollout::EngineConfig& engine) {
  return fmt::format("lower --max-running-requests (now {}) or {}", engine.max_running_requests,
                     engine.max_total_tokens > 0
                         ? fmt::format("--max-total-tokens (now {})", engine.max_total_tokens)
                         : std::string("give --max-total-tokens"));
}

std::string training_remedy(const MachineConfig& machine) {
  return fmt::format("lower --max-tokens-per-gpu (now {}){}", machine.max_tokens_per_gpu,
                     machine.recompute_activations ? "" : ", add --recompute-activations");
}

// What of a model on a GPU stays in host memory: masters, from which weights come, and what is saved.
std::vector<MemoryPart> gpu_host_parts(const Start& start, model::Profile profile, bool trains,
                                       bool reference) {
  const int64_t arena = model::ParameterTable(start.shape).arena_size() * kFloat;
  const int64_t weights = arena + (is_bf16(profile) ? arena / 2 : 0);
  return {{is_bf16(profile) ? "weights (bfloat16) and masters (float32)" : "weights (float32)", weights},
          {"AdamW moments", trains ? 2 * arena : 0},
          {"reference model", reference ? weights : 0}};
}

RunMemory sampling_memory(const Start& start, model::Profile profile, const MachineConfig& machine,
                          const Sampling& sampling) {
  const rollout::EngineConfig& engine = machine.engine;
  const int64_t running = sampling.running(engine);
  RunMemory out;
  if (start.device.gpu) {
    model::GpuWork work;
    add_sampling(sampling, engine, &work);
    work.positions = std::min(start.shape.max_positions, sampling.longest);
    out.gpu = model::gpu_memory(profile, start.shape, work);
    out.host = gpu_host_parts(start, profile, false, false);
  } else {
    const int64_t rows = running + engine.chunked_prefill_size;
    const model::MemoryNeeds needs =
        model::memory_needs(*start.context, profile, start.shape, rows, running, true);
    out.host = {
        {is_bf16(profile) ? "weights (bfloat16) and masters (float32)" : "weights (float32)", needs.weights},
        {"weights, packed for products", needs.packed},
        kv_part(sampling, engine, needs.kv_page),
        {fmt::format("activations of {} tokens", rows), needs.activations},
        {"logits", running * start.shape.vocab * kFloat}};
  }
  out.remedy = sampling_remedy(engine);
  out.host.push_back(kept_part(sampling, ""));
  out.host.push_back(common_part());
  return out;
}

std::string table(const std::string& title, const std::vector<MemoryPart>& parts) {
  std::string out = title + "\n";
  for (const MemoryPart& part : parts) {
    if (part.bytes == 0) continue;
    out += fmt::format("#   {:9.3f} GiB  {}\n", static_cast<double>(part.bytes) / 0x1p30, part.name);
  }
  return out +
         fmt::format("#   {:9.3f} GiB  in all\n", static_cast<double>(model::memory_sum(parts)) / 0x1p30);
}

std::string host_title(const RunMemory& memory) {
  const int64_t machine = machine_memory();
  if (machine <= 0) return "# host memory, at most";
  return fmt::format("# host memory, at most; this machine has {:.1f} GiB with swap{}",
                     static_cast<double>(machine) * 0x1p-30,
                     model::memory_sum(memory.host) > machine ? ": too little, the run will be refused" : "");
}

std::string memory_text(const Start& start, const RunMemory& memory) {
  const std::string device = start.device.reason.empty() ? "" : "# " + start.device.reason + "\n";
  if (!start.device.gpu) return device + table(host_title(memory), memory.host);
  const model::GpuInfo& gpu = *start.device.gpu;
  return device +
         table(fmt::format("# GPU memory, at most; GPU {} ({}) has {:.1f} GiB free of {:.1f}", gpu.index,
                           gpu.name, static_cast<double>(gpu.free_bytes) / 0x1p30,
                           static_cast<double>(gpu.total_bytes) / 0x1p30),
               memory.gpu) +
         table(host_title(memory), memory.host);
}

}  // namespace

Status check_host_memory(int64_t machine, const RunMemory& memory) {
  const int64_t sum = model::memory_sum(memory.host);
  if (machine <= 0 || sum <= machine) return ok_status();
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) * 0x1p-30; };
  std::string terms;
  for (const MemoryPart& part : memory.host) {
    if (part.bytes > 0)
      terms += fmt::format("{}{} {:.1f}", terms.empty() ? "" : ", ", part.name, gib(part.bytes));
  }
  return {
      StatusCode::kInvalid,
      fmt::format("needs {:.1f} GiB of memory at most ({}), this machine has {:.1f} with swap; {}, or lower "
                  "the batch",
                  gib(sum), terms, gib(machine), memory.remedy)};
}

RunMemory train_memory(const TrainConfig& config, const Start& start, const PromptSource& prompts,
                       const Evaluator& evaluator) {
  const rollout::EngineConfig& engine = config.machine.engine;
  const int64_t samples = config.rollout_batch_size * config.n_samples_per_prompt;
  const int64_t longest = prompts.longest_prompt() + config.sampling.max_new_tokens;
  const Sampling rollout{samples, samples, longest};
  Sampling eval;
  if (!evaluator.empty()) {
    eval = {evaluator.most_samples(), evaluator.samples(),
            evaluator.longest_prompt() + config.eval.sampling.max_new_tokens};
  }
  const bool reference = config.update.loss.kl_loss_coef != 0;
  const int64_t update = config.global_batch_size > 0 ? config.global_batch_size : samples;
  const Training training{update, longest, update * config.sampling.max_new_tokens,
                          config.update.grad_leaves};
  const Sampling& cached = larger(rollout, eval, engine);
  const int64_t running = std::max(rollout.running(engine), eval.running(engine));
  RunMemory out;
  if (start.device.gpu) {
    model::GpuWork work;
    add_sampling(cached, engine, &work);
    work.step_rows += running - work.running;
    work.running = running;
    work.keys = std::max(rollout.longest, eval.longest);
    add_training(training, config.profile, config.machine, &work);
    work.reference = reference;
    work.positions = start.shape.max_positions;
    out.gpu = model::gpu_memory(config.profile, start.shape, work);
    out.host = gpu_host_parts(start, config.profile, true, reference);
  } else {
    model::MemoryNeeds needs;
    out.host = training_parts(start, config.profile, config.machine, training, &needs);
    if (reference) {
      const int64_t rows = training.rows(config.profile, config.machine);
      const model::MemoryNeeds scores = model::memory_needs(*start.context, config.profile, start.shape, rows,
                                                            std::min(rows, training.loss_rows), true);
      out.host.push_back({"reference model", needs.weights + needs.packed});
      out.host.push_back({"its activations and logits", scores.activations + scores.logits});
    }
    out.host.push_back(kv_part(cached, engine, needs.kv_page));
    out.host.push_back({"logits", needs.logits + running * start.shape.vocab * kFloat});
  }
  out.remedy = training_remedy(config.machine) + ", " + sampling_remedy(engine);
  const bool eval_kept = eval.kept_bytes() > rollout.kept_bytes();
  out.host.push_back(eval_kept ? kept_part(eval, " of an evaluation") : kept_part(rollout, " of a step"));
  out.host.push_back(common_part());
  return out;
}

RunMemory sft_memory(const SftConfig& config, const Start& start, const DemonstrationLengths& lengths) {
  const Training training{config.batch_size, lengths.longest, config.batch_size * lengths.longest_response,
                          config.update.grad_leaves};
  RunMemory out;
  if (start.device.gpu) {
    model::GpuWork work;
    add_training(training, config.profile, config.machine, &work);
    work.positions = start.shape.max_positions;
    out.gpu = model::gpu_memory(config.profile, start.shape, work);
    out.host = gpu_host_parts(start, config.profile, true, false);
  } else {
    model::MemoryNeeds needs;
    out.host = training_parts(start, config.profile, config.machine, training, &needs);
    out.host.push_back({"logits", needs.logits});
  }
  out.remedy = training_remedy(config.machine);
  out.host.push_back(
      {fmt::format("{} rows, and those of a step", lengths.rows),
       (lengths.tokens + config.batch_size * lengths.longest) * static_cast<int64_t>(sizeof(int32_t))});
  out.host.push_back(common_part());
  return out;
}

RunMemory eval_memory(const EvalCommandConfig& config, const Start& start, const Evaluator& evaluator) {
  return sampling_memory(start, config.profile, config.machine,
                         {evaluator.most_samples(), evaluator.samples(),
                          evaluator.longest_prompt() + config.eval.sampling.max_new_tokens});
}

RunMemory generate_memory(const GenerateConfig& config, const Start& start, int64_t samples,
                          int64_t longest) {
  return sampling_memory(start, config.profile, config.machine, {samples, samples, longest});
}

Status check_memory(const Start& start, const RunMemory& memory) {
  LOCKSTEP_RETURN_IF_ERROR(check_host_memory(machine_memory(), memory));
  if (!start.device.gpu) return ok_status();
  return model::check_gpu_memory(*start.device.gpu, memory.gpu, memory.remedy);
}

Result<std::string> train_memory_text(const TrainConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Start start,
                            read_start(config.hf_checkpoint, config.profile, config.machine));
  const std::string suffix = tasks::default_prompt_suffix(config.rm_type);
  LOCKSTEP_ASSIGN_OR_RETURN(const PromptSource prompts,
                            PromptSource::load(config.prompt, suffix, true, start.text));
  LOCKSTEP_ASSIGN_OR_RETURN(const Evaluator evaluator,
                            Evaluator::load(config.eval, config.prompt, suffix, start.text));
  const rollout::EngineConfig& engine = config.machine.engine;
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(
      {config.prompt.path, prompts.longest_prompt(), "--rollout-max-response-len", config.sampling},
      start.shape, engine));
  if (!evaluator.empty())
    LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(evaluator.needs(), start.shape, engine));
  return memory_text(start, train_memory(config, start, prompts, evaluator));
}

Result<std::string> sft_memory_text(const SftConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Start start,
                            read_start(config.hf_checkpoint, config.profile, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const PromptSource source,
                            PromptSource::load_demonstrations(config.prompt, start.text));
  DemonstrationLengths lengths;
  lengths.rows = source.rows();
  for (int64_t row = 0; row < source.rows(); ++row) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Demonstration pair, source.demonstration(row));
    const auto response = static_cast<int64_t>(pair.response_ids.size());
    const int64_t length = static_cast<int64_t>(pair.prompt_ids.size()) + response;
    if (length > start.shape.max_positions) {
      return invalid("{}: row {} has {} tokens, more than max_position_embeddings {}; shorten or drop it",
                     config.prompt.path, row, length, start.shape.max_positions);
    }
    lengths.longest = std::max(lengths.longest, length);
    lengths.longest_response = std::max(lengths.longest_response, response);
    lengths.tokens += length;
  }
  return memory_text(start, sft_memory(config, start, lengths));
}

Result<std::string> eval_memory_text(const EvalCommandConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_eval_output(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const Start start,
                            read_start(config.hf_checkpoint, config.profile, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Evaluator evaluator,
      Evaluator::load(config.eval, config.prompt, tasks::default_prompt_suffix(config.rm_type), start.text));
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(evaluator.needs(), start.shape, config.machine.engine));
  return memory_text(start, eval_memory(config, start, evaluator));
}

Result<std::string> generate_memory_text(const GenerateConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(check_generate_output(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const Start start,
                            read_start(config.hf_checkpoint, config.profile, config.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SampledPrompt> prompts, generation_prompts(config, start.text));
  const SamplingNeeds needs = generation_needs(config, prompts);
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(needs, start.shape, config.machine.engine));
  const int64_t samples = static_cast<int64_t>(prompts.size()) * config.n_samples_per_prompt;
  return memory_text(
      start, generate_memory(config, start, samples, needs.longest_prompt + config.sampling.max_new_tokens));
}

}  // namespace lockstep::loop
