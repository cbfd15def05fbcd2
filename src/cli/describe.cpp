// SPDX-License-Identifier: Apache-2.0
#include "cli/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/option.h"
#include "cli/values.h"
#include "core/check.h"

namespace lockstep::cli {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Settings of one command, written by the groups of the option table.
class Writer {
 public:
  explicit Writer(CommandSet command) : command_(command) {}

  void flag(const char* name, bool value) { add(name, value ? "true" : "false"); }
  void integer(const char* name, int64_t value) { add(name, std::to_string(value)); }
  void real(const char* name, double value) { add(name, real_text(value)); }
  void text(const char* name, const std::string& value) { add(name, quoted(value)); }
  void text_if(const char* name, const std::string& value) {
    if (!value.empty()) text(name, value);
  }
  void texts_if(const char* name, const std::vector<std::string>& values) {
    std::vector<std::string> items;
    items.reserve(values.size());
    for (const std::string& value : values) items.push_back(quoted(value));
    if (!items.empty()) add(name, fmt::format("[{}]", fmt::join(items, ", ")));
  }
  void integers_if(const char* name, const std::vector<int32_t>& values) {
    if (!values.empty()) add(name, fmt::format("[{}]", fmt::join(values, ", ")));
  }

  std::string finish() const {
    std::string out = fmt::format("# lockstep {}: the resolved configuration\n", command_of(command_).name);
    out += "# These mean something: another value is another run. Of a path, what it holds counts.\n";
    for (const Group group : kTomlGroups) {
      if (group == Group::kRun) out += "\n# These change no bit.\n";
      bool first = true;
      for (const auto& [option, value] : lines_) {
        if (option->group != group) continue;
        if (first) out += fmt::format("{}[{}]\n", group == Group::kRun ? "" : "\n", group_name(group));
        first = false;
        std::string key = option->name;
        std::replace(key.begin(), key.end(), '-', '_');
        out += fmt::format("{} = {}\n", key, value);
      }
    }
    return out;
  }

 private:
  void add(const char* name, std::string value) {
    const Option* option = find_option(name, command_);
    LOCKSTEP_CHECK(option != nullptr, name);
    lines_.emplace_back(option, std::move(value));
  }

  CommandSet command_;
  std::vector<std::pair<const Option*, std::string>> lines_;
};

void write_prompt(const loop::PromptConfig& prompt, Writer* out) {
  out->text_if("prompt-data", prompt.path);
  out->text_if("input-key", prompt.input_key);
  out->text_if("label-key", prompt.label_key);
  out->flag("apply-chat-template", prompt.apply_chat_template);
  if (prompt.prompt_suffix) out->text("prompt-suffix", *prompt.prompt_suffix);
  out->integer("rollout-max-prompt-len", prompt.max_prompt_len);
  out->text("control-tokens", prompt.safe_control_tokens ? "safe" : "compatible");
}

void write_sampling(const rollout::SamplingConfig& sampling, Writer* out) {
  out->integer("rollout-max-response-len", sampling.max_new_tokens);
  out->real("rollout-temperature", sampling.temperature);
  out->real("rollout-top-p", sampling.top_p);
  out->integer("rollout-top-k", sampling.top_k);
  out->texts_if("rollout-stop", sampling.stop);
  out->integers_if("rollout-stop-token-ids", sampling.stop_token_ids);
}

void write_eval(const loop::EvalConfig& eval, Writer* out) {
  std::vector<std::string> words;
  for (const auto& [name, path] : eval.data) words.insert(words.end(), {name, path});
  out->texts_if("eval-prompt-data", words);
  out->integer("n-samples-per-eval-prompt", eval.samples_per_prompt);
  out->integer("eval-max-response-len", eval.sampling.max_new_tokens);
  out->real("eval-temperature", eval.sampling.temperature);
  out->real("eval-top-p", eval.sampling.top_p);
  out->integer("eval-top-k", eval.sampling.top_k);
}

const char* decay_name(trainer::LrDecay decay) {
  switch (decay) {
    case trainer::LrDecay::kConstant:
      return "constant";
    case trainer::LrDecay::kLinear:
      return "linear";
    case trainer::LrDecay::kCosine:
      return "cosine";
  }
  return "";
}

const char* kl_name(trainer::KlType type) {
  switch (type) {
    case trainer::KlType::kK1:
      return "k1";
    case trainer::KlType::kK2:
      return "k2";
    case trainer::KlType::kK3:
      return "k3";
    case trainer::KlType::kLowVar:
      return "low_var_kl";
  }
  return "";
}

void write_loss(const trainer::LossConfig& loss, Writer* out) {
  out->text("advantage-estimator", loss.sequence_ratio ? "gspo" : "grpo");
  out->real("eps-clip", loss.eps_clip);
  out->real("eps-clip-high", loss.eps_clip_high);
  out->real("eps-clip-c", loss.eps_clip_c);
  out->flag("disable-rewards-normalization", !loss.subtract_mean);
  out->flag("disable-grpo-std-normalization", !loss.divide_by_std);
  out->flag("calculate-per-token-loss", loss.per_token);
  out->flag("use-kl-loss", loss.kl_loss_coef > 0);
  out->real("kl-loss-coef", loss.kl_loss_coef);
  out->text("kl-loss-type", kl_name(loss.kl_type));
  out->real("entropy-coef", loss.entropy_coef);
}

void write_optimizer(const trainer::UpdateConfig& update, Writer* out) {
  const trainer::OptimizerConfig& optimizer = update.optimizer;
  out->real("lr", optimizer.lr);
  out->real("min-lr", optimizer.min_lr);
  out->text("lr-decay-style", decay_name(optimizer.decay));
  out->integer("lr-warmup-iters", optimizer.warmup_iters);
  out->integer("lr-decay-iters", optimizer.decay_iters);
  out->real("weight-decay", optimizer.weight_decay);
  out->real("adam-beta1", optimizer.beta1);
  out->real("adam-beta2", optimizer.beta2);
  out->real("adam-eps", optimizer.eps);
  out->real("clip-grad", optimizer.clip_grad);
  out->integer("grad-leaves", update.grad_leaves);
}

template <typename Config>
void write_run(const Config& config, Writer* out) {
  out->text("run-dir", config.run_dir);
  out->text_if("save", config.save);
  out->text_if("load", config.load);
  out->integer("save-interval", config.save_interval);
  out->integer("save-retain", config.save_retain);
}

void write_engine(const rollout::EngineConfig& engine, Writer* out) {
  out->integer("max-running-requests", engine.max_running_requests);
  out->text("admission", engine.admission_shuffle ? fmt::format("shuffle:{}", *engine.admission_shuffle)
                                                  : std::string("fifo"));
  out->text("prefix-cache", engine.prefix_cache ? "on" : "off");
  out->integer("chunked-prefill-size", engine.chunked_prefill_size);
  out->integer("decode-steps", engine.decode_steps);
  out->integer("max-total-tokens", engine.max_total_tokens);
}

void write_machine(const loop::MachineConfig& machine, Writer* out) {
  out->integer("threads", machine.threads);
  out->text("isa", machine.isa);
  out->text("device", machine.device.device);
  out->integer("gpu-index", machine.device.index);
  out->integer("gpu-sms", machine.device.sms);
  out->text("cuda-graphs", machine.device.graphs ? "on" : "off");
}

void write_trainer(const loop::MachineConfig& machine, Writer* out) {
  out->integer("max-tokens-per-gpu", machine.max_tokens_per_gpu);
  out->flag("recompute-activations", machine.recompute_activations);
}

}  // namespace

std::string describe(const loop::TrainConfig& config) {
  Writer out(kTrain);
  out.text("hf-checkpoint", config.hf_checkpoint);
  out.text("profile", model::profile_name(config.profile));
  out.text_if("ref-load", config.ref_load);
  write_prompt(config.prompt, &out);
  out.flag("rollout-shuffle", config.rollout_shuffle);
  out.text("data-order", config.data_order);
  out.integer("num-rollout", config.num_rollout);
  out.integer("rollout-batch-size", config.rollout_batch_size);
  out.integer("n-samples-per-prompt", config.n_samples_per_prompt);
  write_sampling(config.sampling, &out);
  out.integer("rollout-seed", static_cast<int64_t>(config.seed));
  out.text("rm-type", config.rm_type);
  out.integer("global-batch-size", config.global_batch_size);
  write_loss(config.update.loss, &out);
  write_optimizer(config.update, &out);
  out.integer("eval-interval", config.eval.interval);
  out.flag("skip-eval-before-train", config.eval.skip_before_train);
  write_eval(config.eval, &out);
  write_run(config, &out);
  write_machine(config.machine, &out);
  write_trainer(config.machine, &out);
  write_engine(config.machine.engine, &out);
  return out.finish();
}

std::string describe(const loop::SftConfig& config) {
  Writer out(kSft);
  out.text("hf-checkpoint", config.hf_checkpoint);
  out.text("profile", model::profile_name(config.profile));
  write_prompt(config.prompt, &out);
  out.flag("rollout-shuffle", config.shuffle);
  out.text("data-order", config.data_order);
  out.integer("num-rollout", config.num_steps);
  out.integer("rollout-seed", static_cast<int64_t>(config.seed));
  out.integer("global-batch-size", config.batch_size);
  write_optimizer(config.update, &out);
  write_run(config, &out);
  write_machine(config.machine, &out);
  write_trainer(config.machine, &out);
  return out.finish();
}

std::string describe(const loop::EvalCommandConfig& config) {
  Writer out(kEval);
  out.text("hf-checkpoint", config.hf_checkpoint);
  out.text("profile", model::profile_name(config.profile));
  write_prompt(config.prompt, &out);
  out.integer("rollout-seed", static_cast<int64_t>(config.seed));
  write_sampling(config.eval.sampling, &out);
  out.text("rm-type", config.rm_type);
  write_eval(config.eval, &out);
  write_machine(config.machine, &out);
  write_engine(config.machine.engine, &out);
  return out.finish();
}

std::string describe(const loop::GenerateConfig& config) {
  Writer out(kGenerate);
  out.text("hf-checkpoint", config.hf_checkpoint);
  out.text("profile", model::profile_name(config.profile));
  write_prompt(config.prompt, &out);
  out.integer("rollout-seed", static_cast<int64_t>(config.seed));
  out.integer("n-samples-per-prompt", config.n_samples_per_prompt);
  write_sampling(config.sampling, &out);
  write_machine(config.machine, &out);
  write_engine(config.machine.engine, &out);
  return out.finish();
}

}  // namespace lockstep::cli
