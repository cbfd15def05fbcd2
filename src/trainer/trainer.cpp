// SPDX-License-Identifier: Apache-2.0
#include "trainer/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/bytes.h"
#include "ops/adamw/adamw.h"
#include "trainer/batching.h"
#include "trainer/loss.h"

namespace lockstep::trainer {
namespace {

// Sums of one sample, binary64, tokens ascending.
struct SampleSums {
  double loss = 0, policy = 0, kl = 0, entropy = 0, clipped = 0, ratio_kl = 0;
  int64_t tokens = 0;
};

// The loss of one micro-batch: turns log-probs into derivatives, collects the sums of its samples.
class MicroBatchLoss {
 public:
  MicroBatchLoss(const UpdateRequest& request, const UpdateConfig& config, const UpdatePlan& plan,
                 const std::vector<size_t>& members, int64_t pad)
      : request_(request), config_(config), plan_(plan), members_(members) {
    const auto& samples = *request.samples;
    int64_t row = 0;
    for (const size_t i : members) {
      const Member& member = plan.members[i];
      const TrainSample& sample = samples[static_cast<size_t>(member.sample)];
      first_.push_back(static_cast<int64_t>(rows_.size()));
      for (int64_t t = sample.prompt_length; t < static_cast<int64_t>(sample.tokens.size()); ++t) {
        rows_.push_back(
            {row + t - 1, sample.tokens[static_cast<size_t>(t)], slots_ + t - sample.prompt_length});
        place_.push_back({first_.size() - 1, t - sample.prompt_length});
      }
      row += padded_rows(member.rows, pad);
      slots_ += padded_rows(member.loss_rows, pad);
    }
  }

  const std::vector<model::LossRow>& rows() const { return rows_; }
  int64_t slots() const { return slots_; }
  std::vector<float> log_probs;
  std::vector<double> entropies;

  // Derivatives of rows [begin, end) and, once a token is through, its part of the sums.
  Status gradient(int64_t begin, int64_t end, std::vector<SampleSums>* sums, double* abs_diff,
                  model::RowGradient* out) {
    for (int64_t r = begin; r < end; ++r) {
      const auto [slot, t] = place_[static_cast<size_t>(r)];
      const Member& member = plan_.members[members_[slot]];
      const TrainSample& sample = (*request_.samples)[static_cast<size_t>(member.sample)];
      SampleSums& sum = (*sums)[static_cast<size_t>(member.sample)];
      const double weight = token_weight(sample);
      const double logp = log_probs[static_cast<size_t>(r)];
      ++sum.tokens;
      sum.entropy += entropies[static_cast<size_t>(r)];
      if (request_.kind == LossKind::kSupervised) {
        sum.loss += -logp * weight;
        out[r - begin] = {static_cast<float>(-weight), 0.0F};
        continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(
          policy_gradient(member, sample, slot, t, r, weight, &sum, abs_diff, &out[r - begin]));
    }
    return ok_status();
  }

 private:
  double token_weight(const TrainSample& sample) const {
    if (config_.loss.per_token || request_.kind == LossKind::kSupervised) {
      return 1.0 / static_cast<double>(plan_.loss_tokens);
    }
    return 1.0 /
           (static_cast<double>(request_.samples->size()) * static_cast<double>(sample.response_length()));
  }

  Status policy_gradient(const Member& member, const TrainSample& sample, size_t slot, int64_t t, int64_t r,
                         double weight, SampleSums* sum, double* abs_diff, model::RowGradient* out) {
    const float new_bits = log_probs[static_cast<size_t>(r)];
    const float old_bits = sample.old_log_probs[static_cast<size_t>(t)];
    if (request_.on_policy && std::bit_cast<uint32_t>(new_bits) != std::bit_cast<uint32_t>(old_bits)) {
      return stopped(
          "sample {}, response token {}: the trainer's log-prob {} [{}] is not the sampler's {} [{}]; "
          "this is a fault of the program or the machine, the run can not go on",
          member.sample, t, new_bits, to_hex(uint64_t{std::bit_cast<uint32_t>(new_bits)}).substr(8), old_bits,
          to_hex(uint64_t{std::bit_cast<uint32_t>(old_bits)}).substr(8));
    }
    TokenInput token;
    token.new_log_prob = new_bits;
    token.old_log_prob = old_bits;
    token.advantage = sample.advantage;
    token.entropy = entropies[static_cast<size_t>(r)];
    if (!sample.ref_log_probs.empty()) token.ref_log_prob = sample.ref_log_probs[static_cast<size_t>(t)];
    double share = 1;
    if (config_.loss.sequence_ratio) {
      token.log_ratio = sequence_log_ratio(sample, slot);
      share = 1.0 / static_cast<double>(sample.response_length());
    } else {
      token.log_ratio = token.new_log_prob - token.old_log_prob;
    }
    const TokenLoss loss = token_loss(token, config_.loss);
    *abs_diff = std::max(*abs_diff, std::fabs(token.new_log_prob - token.old_log_prob));
    // A sequence ratio has all its tokens' losses behind each log-prob: weights sum to length * weight.
    const double policy =
        config_.loss.sequence_ratio
            ? loss.d_log_ratio * (weight * static_cast<double>(sample.response_length())) * share
            : loss.d_log_ratio * weight;
    double dlogp = policy;
    if (config_.loss.kl_loss_coef != 0) dlogp += config_.loss.kl_loss_coef * loss.d_kl * weight;
    const double dent = config_.loss.entropy_coef != 0 ? -config_.loss.entropy_coef * weight : 0;
    *out = {static_cast<float>(dlogp), static_cast<float>(dent)};
    sum->policy += loss.policy * weight;
    sum->kl += loss.kl * weight;
    sum->loss +=
        (loss.policy + config_.loss.kl_loss_coef * loss.kl - config_.loss.entropy_coef * token.entropy) *
        weight;
    sum->clipped += loss.clipped ? 1 : 0;
    sum->ratio_kl += token.old_log_prob - token.new_log_prob;
    return ok_status();
  }

  double sequence_log_ratio(const TrainSample& sample, size_t slot) const {
    double sum = 0;
    const int64_t first = first_[slot];
    for (int64_t t = 0; t < sample.response_length(); ++t) {
      sum += static_cast<double>(log_probs[static_cast<size_t>(first + t)]) -
             static_cast<double>(sample.old_log_probs[static_cast<size_t>(t)]);
    }
    return sum / static_cast<double>(sample.response_length());
  }

  const UpdateRequest& request_;
  const UpdateConfig& config_;
  const UpdatePlan& plan_;
  const std::vector<size_t>& members_;
  std::vector<model::LossRow> rows_;
  int64_t slots_ = 0;
  std::vector<std::pair<size_t, int64_t>> place_;  // of each row: member slot, response token
  std::vector<int64_t> first_;                     // first loss row of each member slot
};

// The inputs of the members, each padded.
model::MicroBatch micro_batch_of(const UpdateRequest& request, const UpdatePlan& plan,
                                 const std::vector<size_t>& members, int64_t pad) {
  model::MicroBatch batch;
  for (const size_t i : members) {
    const TrainSample& sample = (*request.samples)[static_cast<size_t>(plan.members[i].sample)];
    batch.add_sample(sample.tokens.data(), plan.members[i].rows, pad);
  }
  return batch;
}

void collect(const std::vector<SampleSums>& sums, const UpdatePlan& plan, UpdateMetrics* metrics) {
  SampleSums all;
  for (const SampleSums& s : sums) {
    all.loss += s.loss;
    all.policy += s.policy;
    all.kl += s.kl;
    all.entropy += s.entropy;
    all.clipped += s.clipped;
    all.ratio_kl += s.ratio_kl;
    all.tokens += s.tokens;
  }
  const double tokens = static_cast<double>(std::max<int64_t>(all.tokens, 1));
  metrics->loss = all.loss;
  metrics->policy_loss = all.policy;
  metrics->kl = all.kl;
  metrics->entropy = all.entropy / tokens;
  metrics->clip_fraction = all.clipped / static_cast<double>(std::max<int64_t>(plan.loss_tokens, 1));
  metrics->ratio_kl = all.ratio_kl / tokens;
  metrics->loss_tokens = plan.loss_tokens;
  metrics->trained_samples = static_cast<int64_t>(plan.members.size());
}

}  // namespace

Trainer::Trainer(model::Model* model, OptimizerState* state, const UpdateConfig& config, bool recompute)
    : state_(state), config_(config), learner_(model->make_learner(state, recompute)) {}

Result<UpdateMetrics> Trainer::compute_gradient(const cpu::Context& context, const UpdateRequest& request) {
  const std::vector<TrainSample>& samples = *request.samples;
  const int64_t pad = learner_->row_pad();
  const UpdatePlan plan = plan_update(request, config_, pad);
  UpdateMetrics metrics;
  // Where there are several, the next update's may be a little larger: room for all of them.
  const int64_t rows = plan.micro_batches.size() > 1 ? std::max(plan.micro_batch_rows, request.max_tokens)
                                                     : plan.micro_batch_rows;
  learner_->begin(context, {config_.grad_leaves, plan.total_tokens, rows});
  std::vector<SampleSums> sums(samples.size());
  LeafCursor input_cursor(plan, LeafCursor::Rows::kInput, pad);
  LeafCursor loss_cursor(plan, LeafCursor::Rows::kLoss, pad);
  int64_t done = 0;
  for (const std::vector<size_t>& members : plan.micro_batches) {
    const model::MicroBatch batch = micro_batch_of(request, plan, members, pad);
    MicroBatchLoss loss(request, config_, plan, members, pad);
    const std::vector<model::LeafRows> input_leaves = input_cursor.next(members);
    const std::vector<model::LeafRows> loss_leaves = loss_cursor.next(members);
    model::MicroBatchWork work;
    work.batch = &batch;
    work.rows = &loss.rows();
    work.slots = loss.slots();
    work.input_leaves = &input_leaves;
    work.loss_leaves = &loss_leaves;
    work.temperature = request.temperature;
    work.whole = config_.loss.sequence_ratio && request.kind == LossKind::kPolicy;
    work.log_probs = &loss.log_probs;
    work.entropies = &loss.entropies;
    work.gradient = [&](int64_t begin, int64_t end, model::RowGradient* out) {
      return loss.gradient(begin, end, &sums, &metrics.log_prob_abs_diff, out);
    };
    LOCKSTEP_RETURN_IF_ERROR(learner_->micro_batch(context, work));
    for (const size_t i : members) metrics.forward_tokens += plan.members[i].rows;
    done += static_cast<int64_t>(members.size());
    if (request.progress) request.progress(done, static_cast<int64_t>(plan.members.size()));
  }
  LOCKSTEP_RETURN_IF_ERROR(learner_->gradient_status());
  collect(sums, plan, &metrics);
  return metrics;
}

Status Trainer::apply(const cpu::Context& context, const UpdateRequest& request, UpdateMetrics* metrics) {
  metrics->grad_norm = std::sqrt(learner_->gradient_squares(context));
  metrics->lr = learning_rate(config_.optimizer, request.update, request.total_updates);
  metrics->clip = 1;
  if (config_.optimizer.clip_grad > 0) {
    const double factor = config_.optimizer.clip_grad / (metrics->grad_norm + 1e-6);
    if (factor < 1) metrics->clip = factor;
  }
  const ops::AdamWSettings settings{config_.optimizer.beta1, config_.optimizer.beta2, config_.optimizer.eps,
                                    config_.optimizer.weight_decay};
  learner_->apply(context, ops::adamw_factors(settings, metrics->lr, metrics->clip, state_->step + 1));
  ++state_->step;
  return ok_status();
}

Result<std::vector<std::vector<float>>> Trainer::score(const cpu::Context& context, model::Learner* learner,
                                                       const std::vector<TrainSample>& samples,
                                                       double temperature, int64_t max_tokens) {
  UpdateRequest request;
  request.samples = &samples;
  request.kind = LossKind::kSupervised;  // every sample with a response is a member
  request.max_tokens = max_tokens;
  UpdateConfig config;
  config.grad_leaves = 1;  // no gradient, no leaves
  const int64_t pad = learner->row_pad();
  const UpdatePlan plan = plan_update(request, config, pad);
  std::vector<std::vector<float>> out(samples.size());
  for (const std::vector<size_t>& members : plan.micro_batches) {
    MicroBatchLoss rows(request, config, plan, members, pad);
    LOCKSTEP_RETURN_IF_ERROR(learner->log_probs(context, micro_batch_of(request, plan, members, pad),
                                                rows.rows(), temperature, &rows.log_probs, &rows.entropies));
    auto next = rows.log_probs.begin();
    for (const size_t i : members) {
      const Member& member = plan.members[i];
      out[static_cast<size_t>(member.sample)].assign(next, next + member.loss_rows);
      next += member.loss_rows;
    }
  }
  return out;
}

}  // namespace lockstep::trainer
