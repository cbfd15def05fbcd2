// SPDX-License-Identifier: Apache-2.0
#include "loop/sft.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/log.h"
#include "loop/environment.h"
#include "loop/identity.h"
#include "loop/machine.h"
#include "loop/progress.h"
#include "loop/prompts.h"
#include "loop/records.h"
#include "loop/run_folder.h"
#include "loop/update_record.h"
#include "model/digests.h"
#include "model/load.h"

namespace lockstep::loop {
namespace {

class SftRun {
 public:
  explicit SftRun(const SftConfig& config) : config_(config) {}
  Status prepare();
  Status loop();

 private:
  std::string header() const;
  Status step(int64_t step);

  const SftConfig& config_;
  std::unique_ptr<cpu::Context> context_;
  std::unique_ptr<model::Network> network_;
  std::optional<TextModel> text_;
  std::optional<PromptSource> source_;
  std::optional<data::PromptOrder> order_;
  std::optional<RunFolder> folder_;
  std::unique_ptr<trainer::Trainer> trainer_;
  trainer::OptimizerState state_;
  model::NamedDigests initial_weights_;
  ProgressLine progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string SftRun::header() const {
  ledger::JsonObject checkpoint;
  checkpoint.add("weights", model::combine_digests(initial_weights_).hex())
      .add("tokenizer_sha256", text_->files_sha256);
  ledger::JsonObject out;
  out.add("lockstep_ledger", ledger::kLedgerVersion)
      .add("kind", "sft")
      .add("numerics_version", numerics::kNumericsVersion)
      .add("profile", "fp32")
      .add_json("config", identity_json(config_, text_->end_ids))
      .add_json("data", source_->identity_json())
      .add_json("checkpoint", checkpoint.text());
  return out.text();
}

Status SftRun::prepare() {
  LOCKSTEP_ASSIGN_OR_RETURN(context_, make_context(config_.machine));
  LOCKSTEP_ASSIGN_OR_RETURN(network_, model::load_network(config_.hf_checkpoint));
  const model::ModelConfig& shape = network_->config();
  LOCKSTEP_ASSIGN_OR_RETURN(text_, load_text_model(config_.hf_checkpoint, shape.eos_ids, shape.vocab));
  LOCKSTEP_ASSIGN_OR_RETURN(source_, PromptSource::load_demonstrations(config_.prompt, *text_));
  LOCKSTEP_ASSIGN_OR_RETURN(
      order_, make_prompt_order(config_.data_order, config_.shuffle, config_.seed, source_->rows()));
  initial_weights_ = model::digest_parameters(*context_, network_->table(), network_->arena());

  RunFolderOptions options;
  options.run_dir = config_.run_dir;
  options.save = config_.save;
  options.load = config_.load;
  options.save_interval = config_.save_interval;
  options.retain = config_.save_retain;
  options.steps = config_.num_steps;
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, checkpoint_bytes(network_->table(), true));
  LOCKSTEP_RETURN_IF_ERROR(
      checkpoint::check_space(config_.save.empty() ? config_.run_dir : config_.save, bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(folder_, RunFolder::open(options, header()));
  state_.m = Buffer<float>::zeros(network_->table().arena_size());
  state_.v = Buffer<float>::zeros(network_->table().arena_size());
  if (folder_->resumed()) {
    LOCKSTEP_RETURN_IF_ERROR(folder_->load(network_.get(), &state_));
    log_info("going on from {} at step {}", folder_->checkpoint_folder(), folder_->first_step());
  }
  LOCKSTEP_RETURN_IF_ERROR(folder_->add_environment(
      environment_json(config_.machine, *context_, folder_->checkpoint_folder(), folder_->last_sha256())));
  network_->prepare(*context_, shape.max_positions);
  trainer_ = std::make_unique<trainer::Trainer>(network_.get(), &state_, config_.update,
                                                config_.machine.recompute_activations);
  return ok_status();
}

Status SftRun::step(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<trainer::TrainSample> samples;
  RecordBytes bytes;
  for (int64_t i = 0; i < config_.batch_size; ++i) {
    const int64_t row = order_->row_at(static_cast<uint64_t>(step * config_.batch_size + i));
    LOCKSTEP_ASSIGN_OR_RETURN(const Demonstration pair, source_->demonstration(row));
    trainer::TrainSample sample;
    sample.tokens = pair.prompt_ids;
    sample.prompt_length = static_cast<int64_t>(pair.prompt_ids.size());
    sample.tokens.insert(sample.tokens.end(), pair.response_ids.begin(), pair.response_ids.end());
    if (static_cast<int64_t>(sample.tokens.size()) > network_->config().max_positions) {
      return invalid("{}: row {} has {} tokens, more than max_position_embeddings {}", config_.prompt.path,
                     row, sample.tokens.size(), network_->config().max_positions);
    }
    bytes.add(static_cast<uint64_t>(row));
    bytes.add(static_cast<uint64_t>(sample.prompt_length));
    bytes.add(sample.tokens);
    samples.push_back(std::move(sample));
  }
  folder_->append(step_record(step, "tokens", bytes.digest()));
  trainer::UpdateRequest request;
  request.samples = &samples;
  request.kind = trainer::LossKind::kSupervised;
  request.update = step;
  request.total_updates = config_.num_steps;
  request.max_tokens = config_.machine.max_tokens_per_gpu;
  const UpdateTarget target{context_.get(), network_.get(), &state_, trainer_.get(), &*folder_};
  LOCKSTEP_ASSIGN_OR_RETURN(const trainer::UpdateMetrics metrics, record_update(target, request, step));
  const double seconds = std::max(seconds_since(start), 1e-6);
  ledger::JsonObject line;
  line.add("step", step)
      .add("train/loss", metrics.loss)
      .add("train/grad_norm", metrics.grad_norm)
      .add("train/lr-pg_0", metrics.lr)
      .add("perf/step_time", seconds)
      .add("perf/tokens_per_s", static_cast<double>(metrics.forward_tokens) / seconds);
  LOCKSTEP_RETURN_IF_ERROR(folder_->add_metrics(line.text()));
  LOCKSTEP_RETURN_IF_ERROR(folder_->commit());
  const double each = seconds_since(start_) / static_cast<double>(step - folder_->first_step() + 1);
  const std::string text =
      fmt::format("sft step {}/{}: loss {:.4f}, {:.0f} tokens/s, {} left", step + 1, config_.num_steps,
                  metrics.loss, static_cast<double>(metrics.forward_tokens) / seconds,
                  duration_text(each * static_cast<double>(config_.num_steps - step - 1)));
  constexpr int64_t kLines = 20;  // lines of a whole run that stay
  const int64_t every = std::max<int64_t>(1, config_.num_steps / kLines);
  if ((step + 1) % every == 0 || step + 1 == config_.num_steps) {
    progress_.line(text);
  } else {
    progress_.update(text);
  }
  return ok_status();
}

Status SftRun::loop() {
  if (folder_->first_step() >= config_.num_steps)
    log_info("{}: all {} steps are done", config_.run_dir, config_.num_steps);
  for (int64_t n = folder_->first_step(); n < config_.num_steps; ++n) {
    LOCKSTEP_RETURN_IF_ERROR(step(n));
    if (folder_->save_due(n))
      LOCKSTEP_RETURN_IF_ERROR(folder_->save(n, *network_, state_, config_.hf_checkpoint));
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
