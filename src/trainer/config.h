// SPDX-License-Identifier: Apache-2.0
// The settings of one update. All of them are part of the run's identity.
#pragma once

#include <cstdint>
#include <string>

#include "numerics/constants.h"

namespace lockstep::trainer {

enum class KlType { kK1, kK2, kK3, kLowVar };

// Names and formulas as Miles has them; docs/numerics.md, Loss.
struct LossConfig {
  bool sequence_ratio = false;       // --advantage-estimator gspo: one ratio a sequence
  double eps_clip = 0.2;             // --eps-clip
  double eps_clip_high = 0.2;        // --eps-clip-high (default: eps_clip)
  double eps_clip_c = 0;             // --eps-clip-c: dual clip for negative advantages; 0: off, else > 1
  bool subtract_mean = true;         // off: --disable-rewards-normalization (no mean, no std)
  bool divide_by_std = true;         // off: --disable-grpo-std-normalization (Dr. GRPO)
  bool per_token = false;            // --calculate-per-token-loss; else mean per sample, then mean
  double kl_loss_coef = 0;           // --kl-loss-coef with --use-kl-loss
  KlType kl_type = KlType::kLowVar;  // --kl-loss-type k1|k2|k3|low_var_kl
  double entropy_coef = 0;           // --entropy-coef
};

enum class LrDecay { kConstant, kLinear, kCosine };

struct OptimizerConfig {
  double lr = 1e-6;
  double min_lr = 0;
  LrDecay decay = LrDecay::kConstant;
  int64_t warmup_iters = 0;   // --lr-warmup-iters: linear from lr/warmup to lr
  int64_t decay_iters = 0;    // --lr-decay-iters: 0 means all updates of the run
  double weight_decay = 0.1;  // --weight-decay; none for 1-D tensors
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;       // --adam-eps
  double clip_grad = 1.0;  // --clip-grad; 0: off
};

struct UpdateConfig {
  LossConfig loss;
  OptimizerConfig optimizer;
  int64_t grad_leaves = numerics::kDefaultGradLeaves;  // --grad-leaves
};

}  // namespace lockstep::trainer
