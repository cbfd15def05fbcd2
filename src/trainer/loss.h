// SPDX-License-Identifier: Apache-2.0
// Advantages and token losses (docs/numerics.md, Loss), in binary64. Formulas as Miles computes them: GRPO
// (Shao et al. 2024), clip-higher and token mean (DAPO, Yu et al. 2025), GSPO (Zheng et al. 2025), dual clip
// (Ye et al. 2020), KL estimators k1, k2, k3 (Schulman 2020).
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config.h"

namespace lockstep::trainer {

// Advantages of one group, in order. rewards must be finite. A group of equal rewards has advantage 0
// exactly; so has a group of one while the mean is subtracted.
std::vector<double> group_advantages(const std::vector<double>& rewards, const LossConfig& config);

// One response token under the new policy. Log-probs in nats.
struct TokenInput {
  double new_log_prob = 0;
  double old_log_prob = 0;
  double ref_log_prob = 0;  // used when kl_loss_coef != 0
  double entropy = 0;       // used when entropy_coef != 0
  double advantage = 0;
  double log_ratio = 0;  // new - old of the token, or the sequence mean (GSPO)
};
struct TokenLoss {
  double policy = 0;       // loss of the policy term
  double d_log_ratio = 0;  // its derivative by log_ratio
  double kl = 0;           // KL estimate
  double d_kl = 0;         // its derivative by new_log_prob
  bool clipped = false;    // the clipped branch was taken
  double ratio = 1;
};
TokenLoss token_loss(const TokenInput& token, const LossConfig& config);

// Learning rate of update u (0-based), in binary64. total: updates of the run (used when decay_iters is 0).
double learning_rate(const OptimizerConfig& config, int64_t update, int64_t total);

// Leaf of a sample of `tokens` tokens with `before` tokens before it, of `total`: floor(V*(2*b + t)/(2*T)).
int64_t leaf_of(int64_t leaves, int64_t before, int64_t tokens, int64_t total);

}  // namespace lockstep::trainer
