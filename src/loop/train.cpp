// SPDX-License-Identifier: Apache-2.0
#include "loop/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>

#include "core/file.h"
#include "core/log.h"
#include "loop/evaluate.h"
#include "loop/identity.h"
#include "loop/memory.h"
#include "loop/model_run.h"
#include "loop/records.h"
#include "model/load.h"
#include "tasks/registry.h"
#include "trainer/loss.h"

namespace lockstep::loop {
namespace {
using Clock = std::chrono::steady_clock;

// A run in progress.
class TrainRun {
 public:
  explicit TrainRun(const TrainConfig& config) : config_(config) {}

  Status prepare();
  Status loop();

 private:
  Status load_data();
  Status check_lengths() const;
  Status load_reference();
  Status evaluate(int64_t record_step, int64_t updates);
  Status step(int64_t step);
  Result<SampledBatch> rollout(int64_t step);
  Result<std::vector<trainer::TrainSample>> train_samples(const SampledBatch& batch, int64_t step);
  Status update(int64_t step, const std::vector<trainer::TrainSample>& samples, int64_t part,
                ledger::JsonObject* metrics);
  void record_rollout(int64_t step, const SampledBatch& batch);
  void warn_once(const SampleSummary& summary);
  std::string progress_head(int64_t step) const;
  int64_t samples_per_step() const { return config_.rollout_batch_size * config_.n_samples_per_prompt; }
  int64_t updates_per_step() const { return samples_per_step() / global_batch(); }
  int64_t global_batch() const {
    return config_.global_batch_size > 0 ? config_.global_batch_size : samples_per_step();
  }

  const TrainConfig& config_;
  ModelRun run_;
  std::unique_ptr<tasks::Grader> grader_;
  std::unique_ptr<model::Model> reference_;
  std::unique_ptr<model::Learner> scorer_;  // of the reference
  std::optional<PromptSource> prompts_;
  std::optional<data::PromptOrder> order_;
  std::optional<Evaluator> evaluator_;
  std::unique_ptr<rollout::Engine> engine_;
  Clock::time_point start_ = Clock::now();
  bool warned_spread_ = false;
  bool warned_length_ = false;
};

Status TrainRun::load_data() {
  const std::string suffix = tasks::default_prompt_suffix(config_.rm_type);
  LOCKSTEP_ASSIGN_OR_RETURN(prompts_, PromptSource::load(config_.prompt, suffix, true, run_.start.text));
  LOCKSTEP_ASSIGN_OR_RETURN(
      order_, make_prompt_order(config_.data_order, config_.rollout_shuffle, config_.seed, prompts_->rows()));
  LOCKSTEP_ASSIGN_OR_RETURN(evaluator_,
                            Evaluator::load(config_.eval, config_.prompt, suffix, run_.start.text));
  LOCKSTEP_RETURN_IF_ERROR(check_lengths());
  log_info("data: {} rows of {}; end tokens from {}", prompts_->rows(), config_.prompt.path,
           run_.start.text.end_source);
  return ok_status();
}

// Before anything is written: the longest prompt and response must fit the model's positions and the KV
// cache.
Status TrainRun::check_lengths() const {
  const model::ModelConfig& model = run_.start.shape;
  LOCKSTEP_RETURN_IF_ERROR(check_sampling_needs(
      {config_.prompt.path, prompts_->longest_prompt(), "--rollout-max-response-len", config_.sampling},
      model, config_.machine.engine));
  if (evaluator_->empty()) return ok_status();
  return check_sampling_needs(evaluator_->needs(), model, config_.machine.engine);
}

Status TrainRun::load_reference() {
  if (config_.update.loss.kl_loss_coef == 0) return ok_status();
  if (!config_.ref_load.empty() && !is_directory(config_.ref_load))
    return invalid("--ref-load {}: is not a folder; give one with config.json and safetensors",
                   config_.ref_load);
  LOCKSTEP_ASSIGN_OR_RETURN(
      reference_, model::load_model(config_.ref_load.empty() ? config_.hf_checkpoint : config_.ref_load,
                                    config_.profile, run_.start.device.choice));
  if (reference_->table().arena_size() != run_.model->table().arena_size()) {
    return invalid("--ref-load {}: is a model of another shape than --hf-checkpoint", config_.ref_load);
  }
  return ok_status();
}

Status TrainRun::prepare() {
  LOCKSTEP_ASSIGN_OR_RETURN(grader_, tasks::make_grader(config_.rm_type));
  LOCKSTEP_ASSIGN_OR_RETURN(run_.start, start_run(config_.hf_checkpoint, config_.profile, config_.machine));
  LOCKSTEP_RETURN_IF_ERROR(load_data());
  LOCKSTEP_RETURN_IF_ERROR(
      check_memory(run_.start, train_memory(config_, run_.start, *prompts_, *evaluator_)));
  LOCKSTEP_RETURN_IF_ERROR(run_.load(config_.hf_checkpoint, config_.profile));
  LOCKSTEP_RETURN_IF_ERROR(load_reference());
  RunFolderOptions options;
  options.run_dir = config_.run_dir;
  options.save = config_.save;
  options.load = config_.load;
  options.save_interval = config_.save_interval;
  options.retain = config_.save_retain;
  options.steps = config_.num_rollout;
  ledger::JsonObject data;
  data.add_json("prompts", prompts_->identity_json()).add_json("eval", evaluator_->identity_json());
  const std::string header =
      run_.header("train", identity_json(config_, run_.start.text.end_ids), data.text());
  LOCKSTEP_RETURN_IF_ERROR(
      run_.open(options, header, config_.hf_checkpoint, config_.machine, config_.update));
  if (reference_) {
    reference_->prepare(*run_.start.context, run_.model->config().max_positions);
    scorer_ = reference_->make_learner(nullptr, true);
  }
  engine_ = std::make_unique<rollout::Engine>(*run_.model, config_.machine.engine);
  return ok_status();
}

std::string TrainRun::progress_head(int64_t step) const {
  const int64_t done = step - run_.folder->first_step();
  std::string left;
  if (done > 0) {
    const double each = seconds_since(start_) / static_cast<double>(done);
    left = ", " + duration_text(each * static_cast<double>(config_.num_rollout - step)) + " left";
  }
  return fmt::format("step {}/{}{}", step, config_.num_rollout, left);
}

Status TrainRun::evaluate(int64_t record_step, int64_t updates) {
  const SampleContext sample{run_.start.context.get(), &run_.start.text, engine_.get(), grader_.get(),
                             run_.model->config().vocab};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<EvalResult> results,
                            evaluator_->run(sample, config_.seed, updates, &run_.progress));
  ledger::JsonObject metrics;
  metrics.add("step", record_step).add("updates", updates);
  for (const EvalResult& result : results) {
    RecordBytes bytes;
    for (size_t i = 0; i < result.batch.completions.size(); ++i) {
      bytes.add(result.batch.completions[i].tokens);
      bytes.add(result.batch.completions[i].log_probs);
      bytes.add(result.batch.rewards[i]);
    }
    ledger::LedgerRecord line = step_record(record_step, "eval", bytes.digest());
    line.add("name", result.name).add("updates", updates).add("reward_mean", result.summary.reward_mean);
    run_.folder->append(line);
    const std::string file = updates == 0 ? fmt::format("eval_{}_start.jsonl", result.name)
                                          : RunFolder::step_name("eval_" + result.name, record_step);
    LOCKSTEP_RETURN_IF_ERROR(
        run_.folder->write_samples(file, samples_jsonl(*run_.start.context, result.batch)));
    metrics.add("eval/" + result.name, result.summary.reward_mean)
        .add("eval/" + result.name + "/response_len/mean", result.summary.response_length_mean)
        .add("eval/" + result.name + "/truncated_ratio", result.summary.truncated);
    run_.progress.line(fmt::format("eval {} after {} updates: reward {:.4f} over {} samples ({})",
                                   result.name, updates, result.summary.reward_mean,
                                   result.batch.completions.size(), duration_text(result.seconds)));
  }
  LOCKSTEP_RETURN_IF_ERROR(run_.folder->add_metrics(metrics.text()));
  return run_.folder->commit();
}

Result<SampledBatch> TrainRun::rollout(int64_t step) {
  SampledBatch batch;
  batch.samples_per_prompt = config_.n_samples_per_prompt;
  for (int64_t i = 0; i < config_.rollout_batch_size; ++i) {
    const auto ordinal = static_cast<uint64_t>(step * config_.rollout_batch_size + i);
    const int64_t row = order_->row_at(ordinal);
    batch.prompts.push_back({row, ordinal, prompts_->prompt(row)});
  }
  const SampleContext sample{run_.start.context.get(), &run_.start.text, engine_.get(), grader_.get(),
                             run_.model->config().vocab};
  const auto settings =
      generation_settings(sample, config_.sampling, config_.seed, numerics::Purpose::kRollout);
  const auto start = Clock::now();
  LOCKSTEP_RETURN_IF_ERROR(sample_batch(
      sample, settings,
      [&](const rollout::Progress& p) {
        run_.progress.update(fmt::format(
            "{}: rollout {}/{} samples, {:.0f} tokens/s", progress_head(step), p.finished, p.total,
            static_cast<double>(p.generated_tokens) / std::max(seconds_since(start), 1e-3)));
      },
      &batch));
  return batch;
}

void TrainRun::record_rollout(int64_t step, const SampledBatch& batch) {
  RecordBytes prompts, tokens, log_probs;
  for (const SampledPrompt& p : batch.prompts) {
    prompts.add(static_cast<uint64_t>(p.row));
    prompts.add(p.ordinal);
    prompts.add(p.prompt.ids);
  }
  for (const rollout::Completion& c : batch.completions) {
    tokens.add(c.tokens);
    log_probs.add(c.log_probs);
  }
  RecordBytes rewards;
  rewards.add(batch.rewards);
  run_.folder->append(step_record(step, "prompts", prompts.digest()));
  run_.folder->append(step_record(step, "tokens", tokens.digest()));
  run_.folder->append(step_record(step, "logprobs", log_probs.digest()));
  run_.folder->append(step_record(step, "rewards", rewards.digest()));
}

Result<std::vector<trainer::TrainSample>> TrainRun::train_samples(const SampledBatch& batch, int64_t step) {
  std::vector<trainer::TrainSample> samples;
  const size_t group = static_cast<size_t>(batch.samples_per_prompt);
  std::vector<double> advantages;
  for (size_t p = 0; p < batch.prompts.size(); ++p) {
    const auto first = batch.rewards.begin() + static_cast<std::ptrdiff_t>(p * group);
    const std::vector<double> rewards(first, first + static_cast<std::ptrdiff_t>(group));
    const std::vector<double> of_group = trainer::group_advantages(rewards, config_.update.loss);
    advantages.insert(advantages.end(), of_group.begin(), of_group.end());
  }
  for (size_t i = 0; i < batch.completions.size(); ++i) {
    trainer::TrainSample sample;
    sample.tokens = batch.prompt_of(i).prompt.ids;
    sample.prompt_length = static_cast<int64_t>(sample.tokens.size());
    const rollout::Completion& completion = batch.completions[i];
    sample.tokens.insert(sample.tokens.end(), completion.tokens.begin(), completion.tokens.end());
    sample.old_log_probs = completion.log_probs;
    sample.advantage = advantages[i];
    samples.push_back(std::move(sample));
  }
  RecordBytes bytes;
  bytes.add(advantages);
  run_.folder->append(step_record(step, "advantages", bytes.digest()));
  if (reference_) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto scores, trainer::Trainer::score(*run_.start.context, scorer_.get(),
                                                                   samples, config_.sampling.temperature,
                                                                   config_.machine.max_tokens_per_gpu));
    RecordBytes reference;
    for (size_t i = 0; i < samples.size(); ++i) {
      samples[i].ref_log_probs = std::move(scores[i]);
      reference.add(samples[i].ref_log_probs);
    }
    run_.folder->append(step_record(step, "ref_logprobs", reference.digest()));
  }
  return samples;
}

Status TrainRun::update(int64_t step, const std::vector<trainer::TrainSample>& samples, int64_t part,
                        ledger::JsonObject* out) {
  trainer::UpdateRequest request;
  request.samples = &samples;
  request.update = step * updates_per_step() + part;
  request.total_updates = config_.num_rollout * updates_per_step();
  request.temperature = config_.sampling.temperature;
  request.on_policy = part == 0;
  request.max_tokens = config_.machine.max_tokens_per_gpu;
  request.progress = [&](int64_t done, int64_t total) {
    run_.progress.update(fmt::format("{}: update {}/{} samples", progress_head(step), done, total));
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const trainer::UpdateMetrics metrics,
                            record_update(run_.target(), request, step));
  out->add("train/step", request.update)
      .add("train/loss", metrics.loss)
      .add("train/pg_loss", metrics.policy_loss)
      .add("train/kl_loss", metrics.kl)
      .add("train/entropy_loss", metrics.entropy)
      .add("train/pg_clipfrac", metrics.clip_fraction)
      .add("train/ppo_kl", metrics.ratio_kl)
      .add("train/train_rollout_logprob_abs_diff", metrics.log_prob_abs_diff)
      .add("train/grad_norm", metrics.grad_norm)
      .add("train/lr-pg_0", metrics.lr)
      .add("train/trained_samples", metrics.trained_samples);
  return ok_status();
}

void TrainRun::warn_once(const SampleSummary& summary) {
  if (summary.truncated == 1.0 && !warned_length_) {
    log_warn("every response of this step reached --rollout-max-response-len {}; raise it if rewards stay 0",
             config_.sampling.max_new_tokens);
    warned_length_ = true;
  }
  if (summary.zero_spread_groups == 1.0 && !warned_spread_) {
    log_warn(
        "all rewards within each group are equal in this step: every advantage is 0 and the policy gradient "
        "is 0");
    warned_spread_ = true;
  }
}

Status TrainRun::step(int64_t step) {
  const auto start = Clock::now();
  LOCKSTEP_ASSIGN_OR_RETURN(const SampledBatch batch, rollout(step));
  const double rollout_seconds = seconds_since(start);
  const SampleSummary summary = summarise(batch);
  warn_once(summary);
  record_rollout(step, batch);
  // The disk's time passes beside the update's; the file is there before the step counts as done. Where no
  // thread can be made, it is written at get().
  std::future<Status> written = std::async([&, text = samples_jsonl(*run_.start.context, batch)] {
    return run_.folder->write_samples(RunFolder::step_name("rollout", step), text);
  });
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<trainer::TrainSample> samples, train_samples(batch, step));
  const auto train_start = Clock::now();
  for (int64_t part = 0; part < updates_per_step(); ++part) {
    const auto first = samples.begin() + static_cast<std::ptrdiff_t>(part * global_batch());
    const std::vector<trainer::TrainSample> share(first, first + static_cast<std::ptrdiff_t>(global_batch()));
    ledger::JsonObject metrics;
    metrics.add("step", step);
    if (part == 0) {
      metrics.add("rollout/raw_reward", summary.reward_mean)
          .add("rollout/response_lengths", summary.response_length_mean)
          .add("rollout/truncated_ratio", summary.truncated)
          .add("rollout/zero_std/ratio", summary.zero_spread_groups);
    }
    LOCKSTEP_RETURN_IF_ERROR(update(step, share, part, &metrics));
    const double seconds = seconds_since(start);
    metrics.add("perf/rollout_time", rollout_seconds)
        .add("perf/train_time", seconds_since(train_start))
        .add("perf/step_time", seconds)
        .add("perf/rollout_tokens_per_s",
             static_cast<double>(summary.response_tokens) / std::max(rollout_seconds, 1e-6));
    LOCKSTEP_RETURN_IF_ERROR(run_.folder->add_metrics(metrics.text()));
  }
  LOCKSTEP_RETURN_IF_ERROR(written.get());
  LOCKSTEP_RETURN_IF_ERROR(run_.folder->commit());
  run_.progress.line(
      fmt::format("{}: reward {:.4f}, {:.1f} tokens a response, rollout {:.1f} s, train {:.1f} s",
                  progress_head(step + 1), summary.reward_mean, summary.response_length_mean, rollout_seconds,
                  seconds_since(train_start)));
  return ok_status();
}

Status TrainRun::loop() {
  const int64_t interval = config_.eval.interval;
  const bool evaluates = interval > 0 && !evaluator_->empty();
  const int64_t first = run_.folder->first_step();
  const auto eval_due = [&](int64_t step) { return evaluates && (step + 1) % interval == 0; };
  if (first == 0 && evaluates && !config_.eval.skip_before_train) LOCKSTEP_RETURN_IF_ERROR(evaluate(0, 0));
  // A run killed between a save and the evaluation behind it.
  if (first > 0 && eval_due(first - 1)) LOCKSTEP_RETURN_IF_ERROR(evaluate(first - 1, first));
  if (first >= config_.num_rollout)
    log_info("{}: all {} steps are done", config_.run_dir, config_.num_rollout);
  for (int64_t n = first; n < config_.num_rollout; ++n) {
    if (const Status done = step(n); !done.ok()) return done.with_context(fmt::format("step {}", n));
    if (run_.folder->save_due(n)) {
      run_.trainer->learner().bring_state();
      LOCKSTEP_RETURN_IF_ERROR(run_.folder->save(n, *run_.model, run_.state, config_.hf_checkpoint));
    }
    if (eval_due(n)) LOCKSTEP_RETURN_IF_ERROR(evaluate(n, n + 1));
  }
  return ok_status();
}

}  // namespace

Status run_train(const TrainConfig& config) {
  TrainRun run(config);
  LOCKSTEP_RETURN_IF_ERROR(run.prepare());
  return run.loop();
}

}  // namespace lockstep::loop
