// SPDX-License-Identifier: Apache-2.0
#include "loop/sft.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/log.h"
#include "loop/identity.h"
#include "loop/memory.h"
#include "loop/model_run.h"
#include "loop/records.h"

namespace lockstep::loop {
namespace {

class SftRun {
 public:
  explicit SftRun(const SftConfig& config) : config_(config) {}
  Status prepare();
  Status loop();

 private:
  Status load_data();
  DemonstrationLengths lengths() const;
  Status step(int64_t step);

  const SftConfig& config_;
  ModelRun run_;
  std::vector<trainer::TrainSample> samples_;  // of every row
  std::optional<PromptSource> source_;
  std::optional<data::PromptOrder> order_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Encodes every row, so that a bad one is an error before anything is written.
Status SftRun::load_data() {
  LOCKSTEP_ASSIGN_OR_RETURN(source_, PromptSource::load_demonstrations(config_.prompt, run_.start.text));
  LOCKSTEP_ASSIGN_OR_RETURN(
      order_, make_prompt_order(config_.data_order, config_.shuffle, config_.seed, source_->rows()));
  const int64_t limit = run_.start.shape.max_positions;
  for (int64_t row = 0; row < source_->rows(); ++row) {
    LOCKSTEP_ASSIGN_OR_RETURN(Demonstration pair, source_->demonstration(row));
    trainer::TrainSample sample;
    sample.prompt_length = static_cast<int64_t>(pair.prompt_ids.size());
    sample.tokens = std::move(pair.prompt_ids);
    sample.tokens.insert(sample.tokens.end(), pair.response_ids.begin(), pair.response_ids.end());
    if (static_cast<int64_t>(sample.tokens.size()) > limit) {
      return invalid("{}: row {} has {} tokens, more than max_position_embeddings {}; shorten or drop it",
                     config_.prompt.path, row, sample.tokens.size(), limit);
    }
    samples_.push_back(std::move(sample));
  }
  return ok_status();
}

DemonstrationLengths SftRun::lengths() const {
  DemonstrationLengths out;
  for (const trainer::TrainSample& sample : samples_) {
    const auto tokens = static_cast<int64_t>(sample.tokens.size());
    ++out.rows;
    out.tokens += tokens;
    out.longest = std::max(out.longest, tokens);
    out.longest_response = std::max(out.longest_response, sample.response_length());
  }
  return out;
}

Status SftRun::prepare() {
  LOCKSTEP_ASSIGN_OR_RETURN(run_.start, start_run(config_.hf_checkpoint, config_.profile, config_.machine));
  LOCKSTEP_RETURN_IF_ERROR(load_data());
  LOCKSTEP_RETURN_IF_ERROR(check_memory(run_.start, sft_memory(config_, run_.start, lengths())));
  LOCKSTEP_RETURN_IF_ERROR(run_.load(config_.hf_checkpoint, config_.profile));
  RunFolderOptions options;
  options.run_dir = config_.run_dir;
  options.save = config_.save;
  options.load = config_.load;
  options.save_interval = config_.save_interval;
  options.retain = config_.save_retain;
  options.steps = config_.num_steps;
  const std::string header =
      run_.header("sft", identity_json(config_, run_.start.text.end_ids), source_->identity_json());
  return run_.open(options, header, config_.hf_checkpoint, config_.machine, config_.update);
}

Status SftRun::step(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<trainer::TrainSample> samples;
  RecordBytes bytes;
  for (int64_t i = 0; i < config_.batch_size; ++i) {
    const int64_t row = order_->row_at(static_cast<uint64_t>(step * config_.batch_size + i));
    const trainer::TrainSample& sample = samples_[static_cast<size_t>(row)];
    bytes.add(static_cast<uint64_t>(row));
    bytes.add(static_cast<uint64_t>(sample.prompt_length));
    bytes.add(sample.tokens);
    samples.push_back(sample);
  }
  run_.folder->append(step_record(step, "tokens", bytes.digest()));
  trainer::UpdateRequest request;
  request.samples = &samples;
  request.kind = trainer::LossKind::kSupervised;
  request.update = step;
  request.total_updates = config_.num_steps;
  request.max_tokens = config_.machine.max_tokens_per_gpu;
  LOCKSTEP_ASSIGN_OR_RETURN(const trainer::UpdateMetrics metrics,
                            record_update(run_.target(), request, step));
  const double seconds = std::max(seconds_since(start), 1e-6);
  ledger::JsonObject line;
  line.add("step", step)
      .add("train/loss", metrics.loss)
      .add("train/grad_norm", metrics.grad_norm)
      .add("train/lr-pg_0", metrics.lr)
      .add("perf/step_time", seconds)
      .add("perf/tokens_per_s", static_cast<double>(metrics.forward_tokens) / seconds);
  LOCKSTEP_RETURN_IF_ERROR(run_.folder->add_metrics(line.text()));
  LOCKSTEP_RETURN_IF_ERROR(run_.folder->commit());
  const double each = seconds_since(start_) / static_cast<double>(step - run_.folder->first_step() + 1);
  const std::string text =
      fmt::format("sft step {}/{}: loss {:.4f}, {:.0f} tokens/s, {} left", step + 1, config_.num_steps,
                  metrics.loss, static_cast<double>(metrics.forward_tokens) / seconds,
                  duration_text(each * static_cast<double>(config_.num_steps - step - 1)));
  constexpr int64_t kLines = 20;  // lines of a whole run that stay
  const int64_t every = std::max<int64_t>(1, config_.num_steps / kLines);
  if ((step + 1) % every == 0 || step + 1 == config_.num_steps) {
    run_.progress.line(text);
  } else {
    run_.progress.update(text);
  }
  return ok_status();
}

Status SftRun::loop() {
  if (run_.folder->first_step() >= config_.num_steps)
    log_info("{}: all {} steps are done", config_.run_dir, config_.num_steps);
  for (int64_t n = run_.folder->first_step(); n < config_.num_steps; ++n) {
    if (const Status done = step(n); !done.ok()) return done.with_context(fmt::format("step {}", n));
    if (run_.folder->save_due(n)) {
      run_.trainer->learner().bring_state();
      LOCKSTEP_RETURN_IF_ERROR(run_.folder->save(n, *run_.model, run_.state, config_.hf_checkpoint));
    }
  }
  return ok_status();
}

}  // namespace

Status run_sft(const SftConfig& config) {
  SftRun run(config);
  LOCKSTEP_RETURN_IF_ERROR(run.prepare());
  return run.loop();
}

}  // namespace lockstep::loop
