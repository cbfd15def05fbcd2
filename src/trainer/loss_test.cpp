// SPDX-License-Identifier: Apache-2.0
#include "trainer/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/batching.h"

namespace lockstep::trainer {
namespace {

constexpr double kRound = 1e-6;  // the published values have six digits

TEST(Advantages, AreExactlyZeroForEqualRewards) {  // CASES G02, G04
  for (const double r : {0.0, 1.0, 0.1}) {
    for (const double a : group_advantages(std::vector<double>(8, r), {})) EXPECT_EQ(a, 0.0);
  }
  EXPECT_EQ(group_advantages({0.7}, {})[0], 0.0);
}

TEST(Advantages,
     PerGroupMeanAndUnbiasedDeviation) {  // G05; the epsilon of 1e-6 moves them by 2e-6 of their size
  const std::vector<double> one = group_advantages({1, 0, 0, 0}, {});
  EXPECT_NEAR(one[0], 1.5, 4e-6);
  EXPECT_NEAR(one[1], -0.5, 2e-6);
  EXPECT_DOUBLE_EQ(one[0], 0.75 / (0.5 + 1e-6));
  LossConfig no_std;
  no_std.divide_by_std = false;
  EXPECT_EQ(group_advantages({1, 0, 0, 0}, no_std)[0], 0.75);
  LossConfig raw;
  raw.subtract_mean = false;
  EXPECT_EQ(group_advantages({1, 0.5}, raw), (std::vector<double>{1, 0.5}));
}

TokenLoss loss_at(double log_ratio, double advantage, const LossConfig& config) {
  TokenInput token;
  token.new_log_prob = log_ratio;
  token.log_ratio = log_ratio;
  token.advantage = advantage;
  return token_loss(token, config);
}

TEST(TokenLoss, OnPolicyGradientIsMinusTheAdvantage) {
  const TokenLoss loss = loss_at(0, 1.25, {});
  EXPECT_EQ(loss.policy, -1.25);
  EXPECT_EQ(loss.d_log_ratio, -1.25);
  EXPECT_FALSE(loss.clipped);
}

TEST(TokenLoss, ClipsOnTheSideThatHelps) {
  LossConfig config;
  config.eps_clip_high = 0.28;
  EXPECT_TRUE(loss_at(std::log(1.5), 1, config).clipped);
  EXPECT_DOUBLE_EQ(loss_at(std::log(1.5), 1, config).policy, -1.28);
  EXPECT_EQ(loss_at(std::log(1.5), 1, config).d_log_ratio, 0);
  EXPECT_FALSE(loss_at(std::log(1.5), -1, config).clipped);
  EXPECT_TRUE(loss_at(std::log(0.5), -1, config).clipped);
  config.eps_clip_c = 3;
  EXPECT_DOUBLE_EQ(loss_at(std::log(5.0), -1, config).policy, 3);
  EXPECT_EQ(loss_at(std::log(5.0), -1, config).d_log_ratio, 0);
}

TEST(TokenLoss, DerivativesMatchFiniteDifferences) {
  // Central differences in binary64 with h = 1e-5: error about h^2 and 1e-16/h, both below 1e-8 here.
  constexpr double kH = 1e-5;
  for (const KlType type : {KlType::kK1, KlType::kK2, KlType::kK3, KlType::kLowVar}) {
    LossConfig config;
    config.kl_loss_coef = 1;
    config.kl_type = type;
    for (const double x : {-2.0, -0.1, 0.0, 0.15, 1.0}) {
      for (const double a : {1.0, -0.5}) {
        const TokenLoss at = loss_at(x, a, config);
        const TokenLoss up = loss_at(x + kH, a, config);
        const TokenLoss down = loss_at(x - kH, a, config);
        if (up.clipped == down.clipped) {
          EXPECT_NEAR(at.d_log_ratio, (up.policy - down.policy) / (2 * kH), 1e-8);
        }
        EXPECT_NEAR(at.d_kl, (up.kl - down.kl) / (2 * kH), 1e-8);
      }
    }
  }
}

TEST(TokenLoss, LargeGapsStayFinite) {  // G15: gap = ref - new
  LossConfig config;
  config.kl_loss_coef = 1;
  config.kl_type = KlType::kK3;
  const auto kl = [&](double gap) {
    TokenInput token;
    token.ref_log_prob = gap;
    return token_loss(token, config);
  };
  EXPECT_EQ(kl(0).kl, 0);
  EXPECT_NEAR(kl(1).kl, 0.718282, kRound);
  EXPECT_NEAR(kl(-1).kl, 0.367879, kRound);
  EXPECT_NEAR(kl(5).kl, 142.413159, kRound);
  for (const double gap : {88.0, 89.0, 100.0, 1000.0, -1000.0}) {
    EXPECT_TRUE(std::isfinite(kl(gap).kl)) << gap;
    EXPECT_TRUE(std::isfinite(kl(gap).d_kl)) << gap;
  }
  config.kl_type = KlType::kLowVar;
  EXPECT_EQ(kl(1000).kl, 10);
  EXPECT_EQ(kl(1000).d_kl, 0);
}

TEST(LearningRate, Schedules) {  // R05, R06: a function of the step alone
  OptimizerConfig config;
  config.lr = 1e-5;
  config.decay = LrDecay::kLinear;
  for (int64_t i = 0; i < 10; ++i)
    EXPECT_NEAR(learning_rate(config, i, 10), 1e-5 * (1 - static_cast<double>(i) / 10), 1e-19);
  config.decay = LrDecay::kCosine;
  config.warmup_iters = 10;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0, 40), 1e-6);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 40), 1e-5);
  EXPECT_NEAR(learning_rate(config, 25, 40), 0.5e-5, 1e-20);
  EXPECT_EQ(learning_rate(config, 40, 40), 0);
}

TEST(Leaves, FollowTheCutOfDesign) {
  EXPECT_EQ(leaf_of(4, 0, 10, 40), 0);
  EXPECT_EQ(leaf_of(4, 30, 10, 40), 3);
  EXPECT_EQ(leaf_of(32, 0, 40, 40), 16);
}

TEST(Batching, MicroBatchesCutLeavesConsistently) {
  std::vector<TrainSample> samples(9);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].tokens.assign(5 + i, 1);
    samples[i].prompt_length = 2;
    samples[i].advantage = i == 3 ? 0 : 1;
  }
  UpdateConfig config;
  config.grad_leaves = 3;
  for (const int64_t max_tokens : {1, 13, 40, 10000}) {
    UpdateRequest request;
    request.samples = &samples;
    request.max_tokens = max_tokens;
    const UpdatePlan plan = plan_update(request, config, 1);
    EXPECT_EQ(plan.members.size(), 8U);  // the sample without a gradient counts, but is no member
    EXPECT_EQ(plan.total_tokens, 81);
    LeafCursor cursor(plan, LeafCursor::Rows::kInput, 1);
    LeafCursor padded(plan, LeafCursor::Rows::kInput, 16);
    int64_t padded_rows = 0;
    std::vector<int64_t> rows(3), begins(3), ends(3);
    for (const auto& members : plan.micro_batches) {
      for (const model::LeafRows& leaf : padded.next(members)) {
        EXPECT_EQ(leaf.begin % 16, 0);
        padded_rows += leaf.end - leaf.begin;
      }
      int64_t next = 0;
      for (const model::LeafRows& leaf : cursor.next(members)) {
        const size_t l = static_cast<size_t>(leaf.leaf);
        EXPECT_EQ(leaf.begin, next);
        EXPECT_EQ(leaf.rows_before, rows[l]);
        next = leaf.end;
        rows[l] += leaf.end - leaf.begin;
        begins[l] += leaf.begins ? 1 : 0;
        ends[l] += leaf.ends ? 1 : 0;
      }
    }
    EXPECT_EQ(rows[0] + rows[1] + rows[2], 81 - 9 - 7);
    EXPECT_EQ(padded_rows, 8 * 16);
    for (size_t l = 0; l < 3; ++l) {
      EXPECT_EQ(begins[l], 1);
      EXPECT_EQ(ends[l], 1);
    }
  }
}

TEST(Batching, MicroBatchesEndWithLeavesThatFit) {
  std::vector<TrainSample> samples(24);
  for (TrainSample& sample : samples) {
    sample.tokens.assign(11, 1);  // 10 rows, 16 with padding
    sample.prompt_length = 2;
    sample.advantage = 1;
  }
  UpdateConfig config;
  config.grad_leaves = 6;  // 4 samples each
  UpdateRequest request;
  request.samples = &samples;
  const auto sizes = [&](int64_t max_tokens, int64_t pad) {
    request.max_tokens = max_tokens;
    const UpdatePlan plan = plan_update(request, config, pad);
    LeafCursor cursor(plan, LeafCursor::Rows::kInput, pad);
    std::vector<size_t> out;
    int64_t largest = 0;
    for (const auto& members : plan.micro_batches) {
      out.push_back(members.size());
      int64_t rows = 0;
      for (const model::LeafRows& leaf : cursor.next(members)) {
        rows = std::max(rows, leaf.end);
        EXPECT_TRUE(max_tokens < 4 * padded_rows(10, pad) || (leaf.begins && leaf.ends)) << max_tokens;
      }
      largest = std::max(largest, rows);
    }
    EXPECT_EQ(plan.micro_batch_rows, largest);
    EXPECT_LE(largest, std::max(max_tokens, padded_rows(10, pad)));
    return out;
  };
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(sizes(119, 1), Sizes({8, 8, 8}));
  EXPECT_EQ(sizes(120, 1), Sizes({12, 12}));
  EXPECT_EQ(sizes(79, 1), Sizes({4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(sizes(39, 1), Sizes({3, 3, 3, 3, 3, 3, 3, 3}));  // no leaf fits: cut anywhere
  EXPECT_EQ(sizes(1, 1), Sizes(24, 1));
  EXPECT_EQ(sizes(120, 16), Sizes({4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(sizes(128, 16), Sizes({8, 8, 8}));
}

}  // namespace
}  // namespace lockstep::trainer
