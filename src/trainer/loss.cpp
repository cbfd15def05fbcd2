// SPDX-License-Identifier: Apache-2.0
#include "trainer/loss.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "numerics/math.h"

namespace lockstep::trainer {
namespace {

constexpr double kExponentLimit = 20;  // of exp in ratios and KL terms
constexpr double kLowVarLimit = 10;    // of low_var_kl
constexpr double kStdEpsilon = 1e-6;
constexpr double kPi = 0x1.921fb54442d18p+1;

struct KlTerm {
  double value;
  double derivative;
};

// x = new - ref.
KlTerm kl_term(KlType type, double x) {
  switch (type) {
    case KlType::kK1:
      return {x, 1};
    case KlType::kK2:
      return {x * x * 0.5, x};
    case KlType::kK3:
    case KlType::kLowVar:
      break;
  }
  const double clamped = std::min(std::max(-x, -kExponentLimit), kExponentLimit);
  const double e = numerics::exp(clamped);
  KlTerm term{(e - 1) + x, 1};
  if (-x == clamped) term.derivative = 1 - e;
  if (type == KlType::kLowVar) {
    // The exponent is clamped as a whole there: e - 1 - exponent.
    term.value = (e - 1) - clamped;
    if (-x != clamped) term.derivative = 0;
    if (term.value > kLowVarLimit || term.value < -kLowVarLimit) {
      return {term.value > 0 ? kLowVarLimit : -kLowVarLimit, 0};
    }
  }
  return term;
}

}  // namespace

std::vector<double> group_advantages(const std::vector<double>& rewards, const LossConfig& config) {
  std::vector<double> out = rewards;
  if (!config.subtract_mean) return out;
  const size_t n = rewards.size();
  if (std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards[0]; })) {
    std::fill(out.begin(), out.end(), 0.0);  // by rule, not by rounding
    return out;
  }
  double sum = 0;
  for (const double r : rewards) sum += r;
  const double mean = sum / static_cast<double>(n);
  for (double& a : out) a -= mean;
  if (!config.divide_by_std) return out;
  double squares = 0;
  for (const double a : out) squares += a * a;
  const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
  if (deviation > 0) {
    for (double& a : out) a /= deviation + kStdEpsilon;
  }
  return out;
}

TokenLoss token_loss(const TokenInput& token, const LossConfig& config) {
  TokenLoss out;
  const double exponent = std::min(std::max(token.log_ratio, -kExponentLimit), kExponentLimit);
  const double a = token.advantage;
  out.ratio = numerics::exp(exponent);
  const double plain = -out.ratio * a;
  const double bounded = std::min(std::max(out.ratio, 1 - config.eps_clip), 1 + config.eps_clip_high);
  const double clipped = -bounded * a;
  out.policy = std::max(plain, clipped);
  out.clipped = clipped > plain;
  const bool moves = !out.clipped && exponent == token.log_ratio;
  out.d_log_ratio = moves ? plain : 0;
  if (config.eps_clip_c > 0 && a < 0) {
    const double dual = -config.eps_clip_c * a;
    if (dual < out.policy) {
      out.policy = dual;
      out.d_log_ratio = 0;
      out.clipped = true;
    }
  }
  if (config.kl_loss_coef != 0) {
    const KlTerm kl = kl_term(config.kl_type, token.new_log_prob - token.ref_log_prob);
    out.kl = kl.value;
    out.d_kl = kl.derivative;
  }
  return out;
}

double learning_rate(const OptimizerConfig& config, int64_t update, int64_t total) {
  const int64_t warmup = config.warmup_iters;
  if (update < warmup) return config.lr * (static_cast<double>(update + 1) / static_cast<double>(warmup));
  const int64_t end = config.decay_iters > 0 ? config.decay_iters : total;
  if (config.decay == LrDecay::kConstant) return config.lr;
  if (update >= end) return config.min_lr;
  const double progress = static_cast<double>(update - warmup) / static_cast<double>(end - warmup);
  const double range = config.lr - config.min_lr;
  if (config.decay == LrDecay::kLinear) return config.min_lr + range * (1 - progress);
  return config.min_lr + range * (0.5 * (1 + numerics::cos(kPi * progress)));
}

int64_t leaf_of(int64_t leaves, int64_t before, int64_t tokens, int64_t total) {
  LOCKSTEP_CHECK(total > 0 && leaves > 0);
  return static_cast<int64_t>(static_cast<__int128>(leaves) * (2 * before + tokens) /
                              (2 * static_cast<__int128>(total)));
}

}  // namespace lockstep::trainer
