// SPDX-License-Identifier: Apache-2.0
#include "cli/resolve.h"

#include <algorithm>
#include <set>

#include "core/file.h"
#include "model/config.h"

namespace lockstep::cli {
namespace {

constexpr char kWantsGrader[] =
    "--rm-type NAME: is required; gsm8k, math, f1, dapo, boxed_gsm8k, boxed_math or boxed_f1";

Result<loop::PromptConfig> prompt_of(const Values& values) {
  loop::PromptConfig prompt;
  if (find_option("prompt-data", values.command()) != nullptr) prompt.path = values.text("prompt-data");
  prompt.input_key = values.text("input-key");
  prompt.label_key = values.text("label-key");
  prompt.apply_chat_template = values.flag("apply-chat-template");
  if (values.given("prompt-suffix")) prompt.prompt_suffix = values.text("prompt-suffix");
  prompt.max_prompt_len = values.integer("rollout-max-prompt-len");
  prompt.safe_control_tokens = values.text("control-tokens") == "safe";
  if (prompt.safe_control_tokens && !prompt.apply_chat_template) {
    return invalid("{}: safe has no effect without --apply-chat-template; add it or leave this out",
                   values.where("control-tokens"));
  }
  return prompt;
}

Result<model::Profile> profile_of(const Values& values) {
  LOCKSTEP_ASSIGN_OR_RETURN(const model::Profile profile, model::profile_from_name(values.text("profile")));
  if (!values.flag("bf16")) return profile;
  if (values.given("profile") && profile != model::Profile::kBf16) {
    return invalid("{}: contradicts --profile {}; leave one out", values.where("bf16"),
                   values.text("profile"));
  }
  return model::Profile::kBf16;
}

// The stop set is a set: its order is not part of a run.
template <typename T>
void sort_unique(std::vector<T>* items) {
  std::sort(items->begin(), items->end());
  items->erase(std::unique(items->begin(), items->end()), items->end());
}

rollout::SamplingConfig sampling_of(const Values& values) {
  rollout::SamplingConfig sampling;
  sampling.temperature = values.real("rollout-temperature");
  sampling.top_p = values.real("rollout-top-p");
  sampling.top_k = values.integer("rollout-top-k");
  sampling.max_new_tokens = values.integer("rollout-max-response-len");
  sampling.stop = values.texts("rollout-stop");
  for (const int64_t id : values.integers("rollout-stop-token-ids")) {
    sampling.stop_token_ids.push_back(static_cast<int32_t>(id));
  }
  sort_unique(&sampling.stop);
  sort_unique(&sampling.stop_token_ids);
  return sampling;
}

Status admission_of(const Values& values, std::optional<uint64_t>* shuffle) {
  const std::string text = values.text("admission");
  const std::string prefix = "shuffle:";
  if (text == "fifo") return ok_status();
  const Result<int64_t> seed = text.rfind(prefix, 0) == 0 ? parse_integer(text.substr(prefix.size()))
                                                          : Result<int64_t>(invalid("not shuffle:SEED"));
  if (!seed.ok() || seed.value() < 0) {
    return invalid("{}: '{}' is neither fifo nor shuffle:SEED with a whole SEED of at least 0",
                   values.where("admission"), text);
  }
  *shuffle = static_cast<uint64_t>(seed.value());
  return ok_status();
}

Result<loop::MachineConfig> machine_of(const Values& values) {
  const CommandSet command = values.command();
  loop::MachineConfig machine;
  machine.threads = static_cast<int>(values.integer("threads"));
  machine.isa = values.text("isa");
  machine.device = {values.text("device"), static_cast<int>(values.integer("gpu-index")),
                    static_cast<int>(values.integer("gpu-sms")), values.text("cuda-graphs") == "on"};
  if (find_option("max-tokens-per-gpu", command) != nullptr) {
    machine.max_tokens_per_gpu = values.integer("max-tokens-per-gpu");
    machine.recompute_activations = values.flag("recompute-activations");
  }
  if (find_option("admission", command) == nullptr) return machine;
  rollout::EngineConfig& engine = machine.engine;
  engine.max_running_requests = values.integer("max-running-requests");
  LOCKSTEP_RETURN_IF_ERROR(admission_of(values, &engine.admission_shuffle));
  engine.prefix_cache = values.text("prefix-cache") == "on";
  engine.chunked_prefill_size = values.integer("chunked-prefill-size");
  engine.decode_steps = values.integer("decode-steps");
  engine.max_total_tokens = values.integer("max-total-tokens");
  return machine;
}

// Names go into metric names and file names.
Status check_set_name(const std::string& name, const std::string& where) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  if (std::all_of(name.begin(), name.end(), plain) && name[0] != '.') return ok_status();
  return invalid("{}: '{}' is no name of a data set; letters, digits, _ - and . (not first) make one", where,
                 name);
}

Result<loop::EvalConfig> eval_of(const Values& values) {
  loop::EvalConfig eval;
  const std::vector<std::string> words = values.texts("eval-prompt-data");
  std::set<std::string> names;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string where = values.where("eval-prompt-data");
    LOCKSTEP_RETURN_IF_ERROR(check_set_name(words[i], where));
    if (!names.insert(words[i]).second) return invalid("{}: two data sets are named {}", where, words[i]);
    eval.data.emplace_back(words[i], words[i + 1]);
  }
  eval.samples_per_prompt = values.integer("n-samples-per-eval-prompt");
  eval.sampling = sampling_of(values);
  if (values.given("eval-max-response-len")) {
    eval.sampling.max_new_tokens = values.integer("eval-max-response-len");
  }
  if (values.given("eval-temperature")) eval.sampling.temperature = values.real("eval-temperature");
  if (values.given("eval-top-p")) eval.sampling.top_p = values.real("eval-top-p");
  if (values.given("eval-top-k")) eval.sampling.top_k = values.integer("eval-top-k");
  return eval;
}

Result<trainer::OptimizerConfig> optimizer_of(const Values& values) {
  trainer::OptimizerConfig optimizer;
  optimizer.lr = values.real("lr");
  optimizer.min_lr = values.real("min-lr");
  const std::string style = values.text("lr-decay-style");
  optimizer.decay = style == "linear"   ? trainer::LrDecay::kLinear
                    : style == "cosine" ? trainer::LrDecay::kCosine
                                        : trainer::LrDecay::kConstant;
  optimizer.warmup_iters = values.integer("lr-warmup-iters");
  optimizer.decay_iters = values.integer("lr-decay-iters");
  optimizer.weight_decay = values.real("weight-decay");
  optimizer.beta1 = values.real("adam-beta1");
  optimizer.beta2 = values.real("adam-beta2");
  optimizer.eps = values.real("adam-eps");
  optimizer.clip_grad = values.real("clip-grad");
  if (optimizer.min_lr > optimizer.lr) {
    return invalid("{}: {} is above --lr {}; lower it", values.where("min-lr"), real_text(optimizer.min_lr),
                   real_text(optimizer.lr));
  }
  return optimizer;
}

// updates: of the whole run, which is where a decay of unstated length ends.
Status check_schedule(const Values& values, const trainer::OptimizerConfig& optimizer, int64_t updates) {
  if (optimizer.decay == trainer::LrDecay::kConstant) return ok_status();
  const int64_t end = optimizer.decay_iters > 0 ? optimizer.decay_iters : updates;
  if (optimizer.warmup_iters < end) return ok_status();
  return invalid(
      "{}: a warm-up of {} updates leaves nothing to decay, which ends at {}; lower it or raise "
      "--lr-decay-iters",
      values.where("lr-warmup-iters"), optimizer.warmup_iters, end);
}

Result<trainer::LossConfig> loss_of(const Values& values) {
  trainer::LossConfig loss;
  loss.sequence_ratio = values.text("advantage-estimator") == "gspo";
  loss.eps_clip = values.real("eps-clip");
  loss.eps_clip_high = values.given("eps-clip-high") ? values.real("eps-clip-high") : loss.eps_clip;
  loss.eps_clip_c = values.real("eps-clip-c");
  loss.subtract_mean = !values.flag("disable-rewards-normalization");
  loss.divide_by_std = loss.subtract_mean && !values.flag("disable-grpo-std-normalization");
  loss.per_token = values.flag("calculate-per-token-loss");
  loss.kl_loss_coef = values.real("kl-loss-coef");
  const std::string type = values.text("kl-loss-type");
  loss.kl_type = type == "k1"   ? trainer::KlType::kK1
                 : type == "k2" ? trainer::KlType::kK2
                 : type == "k3" ? trainer::KlType::kK3
                                : trainer::KlType::kLowVar;
  loss.entropy_coef = values.real("entropy-coef");
  if (loss.kl_loss_coef > 0 && !values.flag("use-kl-loss")) {
    return invalid("{}: {} has no effect without --use-kl-loss; add it or leave this out",
                   values.where("kl-loss-coef"), real_text(loss.kl_loss_coef));
  }
  return loss;
}

// Samples an update, from --global-batch-size or --num-steps-per-rollout.
Result<int64_t> global_batch_of(const Values& values, int64_t samples) {
  if (values.given("num-steps-per-rollout")) {
    const int64_t updates = values.integer("num-steps-per-rollout");
    if (samples % updates != 0) {
      return invalid(
          "{}: {} updates do not divide the {} samples of a step (--rollout-batch-size times "
          "--n-samples-per-prompt)",
          values.where("num-steps-per-rollout"), updates, samples);
    }
    if (values.given("global-batch-size") && values.integer("global-batch-size") != samples / updates) {
      return invalid("{}: says {} samples an update, but --num-steps-per-rollout {} says {}; leave one out",
                     values.where("global-batch-size"), values.integer("global-batch-size"), updates,
                     samples / updates);
    }
    return samples / updates;
  }
  if (!values.given("global-batch-size")) return samples;
  const int64_t batch = values.integer("global-batch-size");
  if (batch > samples || samples % batch != 0) {
    return invalid(
        "{}: {} does not divide the {} samples of a step (--rollout-batch-size times "
        "--n-samples-per-prompt)",
        values.where("global-batch-size"), batch, samples);
  }
  return batch;
}

void warn_about(const loop::TrainConfig& config, std::vector<std::string>* warnings) {
  if (config.n_samples_per_prompt == 1 && config.update.loss.subtract_mean) {
    warnings->push_back(
        "--n-samples-per-prompt 1: the advantage of a group of one is 0, so nothing is learned; take more "
        "samples "
        "or --disable-rewards-normalization");
  }
  if (config.sampling.temperature == 0) {
    warnings->push_back(
        "--rollout-temperature 0: all samples of a prompt are the same, so every advantage is 0 under "
        "normalisation");
  }
  if (config.update.optimizer.eps < 1e-10) {
    warnings->push_back(
        "--adam-eps below 1e-10: the update of a weight whose gradient is nearly 0 is then "
        "decided by rounding");
  }
}

}  // namespace

Result<loop::TrainConfig> resolve_train(const Values& values, std::vector<std::string>* warnings) {
  loop::TrainConfig config;
  config.hf_checkpoint = values.text("hf-checkpoint");
  LOCKSTEP_ASSIGN_OR_RETURN(config.profile, profile_of(values));
  config.ref_load = values.text("ref-load");
  LOCKSTEP_ASSIGN_OR_RETURN(config.prompt, prompt_of(values));
  config.rollout_shuffle = values.flag("rollout-shuffle");
  config.data_order = values.text("data-order");
  config.rm_type = values.text("rm-type");
  if (config.rm_type.empty()) return invalid(kWantsGrader);
  config.num_rollout = values.integer("num-rollout");
  config.rollout_batch_size = values.integer("rollout-batch-size");
  config.n_samples_per_prompt = values.integer("n-samples-per-prompt");
  const int64_t samples = config.rollout_batch_size * config.n_samples_per_prompt;
  LOCKSTEP_ASSIGN_OR_RETURN(config.global_batch_size, global_batch_of(values, samples));
  config.seed = static_cast<uint64_t>(values.integer("rollout-seed"));
  config.sampling = sampling_of(values);
  LOCKSTEP_ASSIGN_OR_RETURN(config.eval, eval_of(values));
  config.eval.interval = values.integer("eval-interval");
  config.eval.skip_before_train = values.flag("skip-eval-before-train");
  if (config.eval.interval == 0 && !config.eval.data.empty()) {
    warnings->push_back("--eval-prompt-data: not read, for there is no --eval-interval");
    config.eval.data.clear();
  }
  if (config.eval.interval > 0 && config.eval.data.empty()) {
    return invalid("{}: {} needs --eval-prompt-data NAME FILE", values.where("eval-interval"),
                   config.eval.interval);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(config.update.loss, loss_of(values));
  LOCKSTEP_ASSIGN_OR_RETURN(config.update.optimizer, optimizer_of(values));
  LOCKSTEP_RETURN_IF_ERROR(check_schedule(values, config.update.optimizer,
                                          config.num_rollout * (samples / config.global_batch_size)));
  config.update.grad_leaves = values.integer("grad-leaves");
  LOCKSTEP_ASSIGN_OR_RETURN(config.machine, machine_of(values));
  config.run_dir = values.text("run-dir");
  config.save = values.text("save");  // "": the run folder
  config.load = values.text("load");
  config.save_interval = values.integer("save-interval");
  config.save_retain = values.integer("save-retain");
  if (values.flag("use-kl-loss") && config.update.loss.kl_loss_coef == 0) {
    warnings->push_back(fmt::format(
        "{}: no effect, for --kl-loss-coef is 0: no reference model is read and no KL is computed",
        values.where("use-kl-loss")));
  }
  warn_about(config, warnings);
  return config;
}

Result<loop::SftConfig> resolve_sft(const Values& values) {
  loop::SftConfig config;
  config.hf_checkpoint = values.text("hf-checkpoint");
  LOCKSTEP_ASSIGN_OR_RETURN(config.profile, profile_of(values));
  LOCKSTEP_ASSIGN_OR_RETURN(config.prompt, prompt_of(values));
  config.shuffle = values.flag("rollout-shuffle");
  config.data_order = values.text("data-order");
  config.num_steps = values.integer("num-rollout");
  config.batch_size = values.integer("global-batch-size");
  config.seed = static_cast<uint64_t>(values.integer("rollout-seed"));
  LOCKSTEP_ASSIGN_OR_RETURN(config.update.optimizer, optimizer_of(values));
  LOCKSTEP_RETURN_IF_ERROR(check_schedule(values, config.update.optimizer, config.num_steps));
  config.update.grad_leaves = values.integer("grad-leaves");
  LOCKSTEP_ASSIGN_OR_RETURN(config.machine, machine_of(values));
  config.run_dir = values.text("run-dir");
  config.save = values.text("save");  // "": the run folder
  config.load = values.text("load");
  config.save_interval = values.integer("save-interval");
  config.save_retain = values.integer("save-retain");
  return config;
}

Result<loop::EvalCommandConfig> resolve_eval(const Values& values) {
  loop::EvalCommandConfig config;
  config.hf_checkpoint = values.text("hf-checkpoint");
  LOCKSTEP_ASSIGN_OR_RETURN(config.profile, profile_of(values));
  LOCKSTEP_ASSIGN_OR_RETURN(config.prompt, prompt_of(values));
  config.rm_type = values.text("rm-type");
  if (config.rm_type.empty()) return invalid(kWantsGrader);
  LOCKSTEP_ASSIGN_OR_RETURN(config.eval, eval_of(values));
  if (config.eval.data.empty()) return invalid("--eval-prompt-data NAME FILE ...: is required");
  config.seed = static_cast<uint64_t>(values.integer("rollout-seed"));
  LOCKSTEP_ASSIGN_OR_RETURN(config.machine, machine_of(values));
  config.out = values.text("out");
  return config;
}

Result<loop::GenerateConfig> resolve_generate(const Values& values) {
  loop::GenerateConfig config;
  config.hf_checkpoint = values.text("hf-checkpoint");
  LOCKSTEP_ASSIGN_OR_RETURN(config.profile, profile_of(values));
  config.prompts = values.texts("prompt");
  LOCKSTEP_ASSIGN_OR_RETURN(config.prompt, prompt_of(values));
  // What the command line says takes the place of the other one in a file.
  const auto on_command_line = [&](const char* name) {
    const Value* value = values.find(name);
    return value != nullptr && !value->from_file;
  };
  if (on_command_line("prompt") && !on_command_line("prompt-data")) config.prompt.path.clear();
  if (on_command_line("prompt-data") && !on_command_line("prompt")) config.prompts.clear();
  if (config.prompts.empty() == config.prompt.path.empty()) {
    return invalid("--prompt TEXT ... or --prompt-data FILE: give {}",
                   config.prompts.empty() ? "one of them" : "only one of them");
  }
  config.n_samples_per_prompt = values.integer("n-samples-per-prompt");
  config.seed = static_cast<uint64_t>(values.integer("rollout-seed"));
  config.sampling = sampling_of(values);
  LOCKSTEP_ASSIGN_OR_RETURN(config.machine, machine_of(values));
  config.out = values.text("out");
  return config;
}

loop::InitConfig resolve_init(const Values& values) {
  loop::InitConfig config;
  config.model_config = values.text("model-config");
  config.tokenizer = values.text("tokenizer");
  config.seed = static_cast<uint64_t>(values.integer("rollout-seed"));
  config.out = values.text("save");
  return config;
}

Result<loop::DebugLogitsConfig> resolve_debug_logits(const Values& values) {
  loop::DebugLogitsConfig config;
  config.hf_checkpoint = values.text("hf-checkpoint");
  LOCKSTEP_ASSIGN_OR_RETURN(config.profile, profile_of(values));
  config.tokens = values.text("tokens");
  config.out = values.text("out");
  config.grads = values.flag("grads");
  config.greedy = values.integer("greedy");
  config.prompt_len = values.integer("prompt-len");
  if ((config.greedy > 0) != (config.prompt_len > 0)) {
    return invalid("--greedy N and --prompt-len P: one needs the other, both at least 1");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(config.machine, machine_of(values));
  return config;
}

Status check_model_facts(const Values& values) {
  std::string path;
  std::string json_text;
  for (const auto& [name, value] : values.all_given()) {
    const Option* option = find_option(name, values.command());
    if (option == nullptr || option->role != Role::kStated) continue;
    if (path.empty()) {
      path = join_path(values.text("hf-checkpoint"), "config.json");
      LOCKSTEP_ASSIGN_OR_RETURN(json_text, read_file(path));
    }
    const size_t equals = option->target.find('=');  // of a flag: what it says
    const std::string key = option->target.substr(0, equals);
    const std::string stated = equals != std::string::npos  ? option->target.substr(equals + 1)
                               : option->kind == Kind::kInt ? std::to_string(value.integer)
                                                            : real_text(value.real);
    const Status same = model::check_stated_value(json_text, path, value.where, key, stated);
    if (option->kind != Kind::kFlag || value.flag) {
      LOCKSTEP_RETURN_IF_ERROR(same);
    } else if (same.ok()) {
      return invalid("{}: the checkpoint says {} = {} ({}); remove the option or use the model it describes",
                     value.where, key, stated, path);
    }
  }
  return ok_status();
}

}  // namespace lockstep::cli
