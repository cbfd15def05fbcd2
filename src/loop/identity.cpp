// SPDX-License-Identifier: Apache-2.0
#include "loop/identity.h"

#include <algorithm>

#include "ledger/json_text.h"

namespace lockstep::loop {
namespace {

using ledger::JsonObject;

template <typename T>
std::string json_list(const std::vector<T>& values) {
  std::vector<std::string> items;
  items.reserve(values.size());
  for (const T& value : values) items.push_back(ledger::json_text(value));
  return ledger::json_array(items);
}

// Sets have one spelling: ascending, each once.
template <typename T>
std::vector<T> as_set(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

void add_prompt(const PromptConfig& prompt, JsonObject* out) {
  out->add("input_key", prompt.input_key)
      .add("label_key", prompt.label_key)
      .add("apply_chat_template", prompt.apply_chat_template);
  if (prompt.prompt_suffix) {
    out->add("prompt_suffix", *prompt.prompt_suffix);
  } else {
    out->add_json("prompt_suffix", "null");  // follows from rm_type and the columns
  }
  out->add("rollout_max_prompt_len", prompt.max_prompt_len)
      .add("control_tokens", prompt.safe_control_tokens ? "safe" : "compatible");
}

void add_order(bool shuffle, const std::string& data_order, uint64_t seed, JsonObject* out) {
  out->add("data_order", shuffle ? data_order : std::string("file")).add("rollout_seed", seed);
}

void add_stops(const rollout::SamplingConfig& sampling, const std::vector<int32_t>& end_ids,
               JsonObject* out) {
  std::vector<int32_t> ids = sampling.stop_token_ids;
  ids.insert(ids.end(), end_ids.begin(), end_ids.end());
  out->add_json("rollout_stop", json_list(as_set(sampling.stop)))
      .add_json("rollout_stop_token_ids", json_list(as_set(std::move(ids))));
}

void add_sampling(const std::string& prefix, const rollout::SamplingConfig& sampling, JsonObject* out) {
  out->add(prefix + "_max_response_len", sampling.max_new_tokens)
      .add(prefix + "_temperature", sampling.temperature)
      .add(prefix + "_top_p", sampling.top_p)
      .add(prefix + "_top_k", sampling.top_k);
}

void add_eval(const EvalConfig& eval, const std::vector<int32_t>& end_ids, JsonObject* out) {
  const bool evaluates = eval.interval > 0 && !eval.data.empty();
  out->add("eval_interval", evaluates ? eval.interval : int64_t{0});
  if (!evaluates) return;
  out->add("skip_eval_before_train", eval.skip_before_train)
      .add("n_samples_per_eval_prompt", eval.samples_per_prompt);
  add_sampling("eval", eval.sampling, out);
  std::vector<int32_t> ids = eval.sampling.stop_token_ids;
  ids.insert(ids.end(), end_ids.begin(), end_ids.end());
  out->add_json("eval_stop", json_list(as_set(eval.sampling.stop)))
      .add_json("eval_stop_token_ids", json_list(as_set(std::move(ids))));
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

void add_loss(const trainer::LossConfig& loss, JsonObject* out) {
  out->add("advantage_estimator", loss.sequence_ratio ? "gspo" : "grpo")
      .add("eps_clip", loss.eps_clip)
      .add("eps_clip_high", loss.eps_clip_high)
      .add("eps_clip_c", loss.eps_clip_c)
      .add("disable_rewards_normalization", !loss.subtract_mean)
      .add("disable_grpo_std_normalization", !loss.divide_by_std)
      .add("calculate_per_token_loss", loss.per_token)
      .add("kl_loss_coef", loss.kl_loss_coef);
  if (loss.kl_loss_coef != 0) out->add("kl_loss_type", kl_name(loss.kl_type));
  out->add("entropy_coef", loss.entropy_coef);
}

// total_updates: of the whole run.
void add_optimizer(const trainer::UpdateConfig& update, int64_t total_updates, JsonObject* out) {
  const trainer::OptimizerConfig& optimizer = update.optimizer;
  out->add("lr", optimizer.lr).add("lr_warmup_iters", optimizer.warmup_iters);
  switch (optimizer.decay) {
    case trainer::LrDecay::kConstant:
      out->add("lr_decay_style", "constant");
      break;
    case trainer::LrDecay::kLinear:
    case trainer::LrDecay::kCosine:
      out->add("lr_decay_style", optimizer.decay == trainer::LrDecay::kLinear ? "linear" : "cosine")
          .add("lr_decay_iters", optimizer.decay_iters > 0 ? optimizer.decay_iters : total_updates)
          .add("min_lr", optimizer.min_lr);
      break;
  }
  out->add("weight_decay", optimizer.weight_decay)
      .add("adam_beta1", optimizer.beta1)
      .add("adam_beta2", optimizer.beta2)
      .add("adam_eps", optimizer.eps)
      .add("clip_grad", optimizer.clip_grad)
      .add("grad_leaves", update.grad_leaves);
}

}  // namespace

std::string identity_json(const TrainConfig& config, const std::vector<int32_t>& end_ids) {
  const int64_t samples = config.rollout_batch_size * config.n_samples_per_prompt;
  const int64_t batch = config.global_batch_size > 0 ? config.global_batch_size : samples;
  JsonObject out;
  add_prompt(config.prompt, &out);
  add_order(config.rollout_shuffle, config.data_order, config.seed, &out);
  out.add("rm_type", config.rm_type)
      .add("rollout_batch_size", config.rollout_batch_size)
      .add("n_samples_per_prompt", config.n_samples_per_prompt);
  add_sampling("rollout", config.sampling, &out);
  add_stops(config.sampling, end_ids, &out);
  out.add("global_batch_size", batch);
  add_loss(config.update.loss, &out);
  add_optimizer(config.update, config.num_rollout * (samples / batch), &out);
  add_eval(config.eval, end_ids, &out);
  return out.text();
}

std::string identity_json(const SftConfig& config, const std::vector<int32_t>& end_ids) {
  JsonObject out;
  add_prompt(config.prompt, &out);
  add_order(config.shuffle, config.data_order, config.seed, &out);
  out.add_json("end_token_ids", json_list(end_ids)).add("global_batch_size", config.batch_size);
  add_optimizer(config.update, config.num_steps, &out);
  return out.text();
}

}  // namespace lockstep::loop
