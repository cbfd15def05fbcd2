// SPDX-License-Identifier: Apache-2.0
// One update: forward, loss, backward into the gradient image, norm, clip, AdamW.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "device/cpu/context.h"
#include "model/model.h"
#include "trainer/config.h"

namespace lockstep::trainer {

// One sample of an update, prompt and response.
struct TrainSample {
  std::vector<int32_t> tokens;
  int64_t prompt_length = 0;         // tokens before the first that carries loss; at least 1
  double advantage = 0;              // policy loss only
  std::vector<float> old_log_probs;  // [response], as the sampler gave them; policy loss only
  std::vector<float> ref_log_probs;  // [response]; with a KL term only
  int64_t response_length() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
};

enum class LossKind { kPolicy, kSupervised };  // supervised: minus the mean log-prob of the response tokens

struct UpdateRequest {
  const std::vector<TrainSample>* samples = nullptr;  // canonical order
  LossKind kind = LossKind::kPolicy;
  int64_t update = 0;  // 0-based index of the update in the run
  int64_t total_updates = 0;
  double temperature = 1;     // of the log-probs (0 counts as 1)
  bool on_policy = true;      // the weights are those that sampled: new log-probs must equal old_log_probs
  int64_t max_tokens = 9216;  // rows of a micro-batch, with padding (at least one sample); changes no bit
  std::function<void(int64_t done, int64_t total)> progress;  // samples
};

struct UpdateMetrics {
  double loss = 0;
  double policy_loss = 0;
  double kl = 0;
  double entropy = 0;  // mean over trained tokens, nats
  double clip_fraction = 0;
  double ratio_kl = 0;           // mean of old - new (ppo_kl)
  double log_prob_abs_diff = 0;  // largest |new - old|; 0 when on policy, else the update stops
  double grad_norm = 0;
  double clip = 1;
  double lr = 0;
  int64_t loss_tokens = 0;      // of all samples
  int64_t trained_samples = 0;  // with a gradient
  int64_t forward_tokens = 0;
};

using model::OptimizerState;

class Trainer {
 public:
  // The model is updated in place. recompute: keep only layer inputs in forward.
  Trainer(model::Model* model, OptimizerState* state, const UpdateConfig& config, bool recompute);

  // Two halves, so that the gradient can be recorded between them. Errors (kStopped): a log-prob differs from
  // the sampler's (names sample and token); a gradient or score out of range. Weights and moments are
  // untouched on error.
  Result<UpdateMetrics> compute_gradient(const cpu::Context& context, const UpdateRequest& request);
  // Norm, clip, AdamW.
  Status apply(const cpu::Context& context, const UpdateRequest& request, UpdateMetrics* metrics);

  model::Learner& learner() { return *learner_; }

  // Log-probs of the response tokens under a learner's model, [sample][response].
  static Result<std::vector<std::vector<float>>> score(const cpu::Context& context, model::Learner* learner,
                                                       const std::vector<TrainSample>& samples,
                                                       double temperature, int64_t max_tokens);

 private:
  OptimizerState* state_;
  UpdateConfig config_;
  std::unique_ptr<model::Learner> learner_;
};

}  // namespace lockstep::trainer
