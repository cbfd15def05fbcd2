// SPDX-License-Identifier: Apache-2.0
#include "trainer/batching.h"

#include <algorithm>
#include <map>

#include "trainer/loss.h"

namespace lockstep::trainer {

UpdatePlan plan_update(const UpdateRequest& request, const UpdateConfig& config, int64_t pad) {
  const std::vector<TrainSample>& samples = *request.samples;
  UpdatePlan plan;
  for (const TrainSample& sample : samples) {
    plan.total_tokens += static_cast<int64_t>(sample.tokens.size());
    plan.loss_tokens += sample.response_length();
  }
  const bool all_carry =
      request.kind == LossKind::kSupervised || config.loss.kl_loss_coef != 0 || config.loss.entropy_coef != 0;
  int64_t before = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const TrainSample& sample = samples[i];
    const int64_t tokens = static_cast<int64_t>(sample.tokens.size());
    if (sample.response_length() > 0 && (all_carry || sample.advantage != 0)) {
      plan.members.push_back({static_cast<int64_t>(i),
                              leaf_of(config.grad_leaves, before, tokens, plan.total_tokens), tokens - 1,
                              sample.response_length()});
    }
    before += tokens;
  }
  std::map<int64_t, int64_t> leaf_rows;
  for (const Member& member : plan.members) leaf_rows[member.leaf] += padded_rows(member.rows, pad);
  int64_t rows = 0;
  for (size_t i = 0; i < plan.members.size(); ++i) {
    const Member& member = plan.members[i];
    const bool starts_leaf = i == 0 || plan.members[i - 1].leaf != member.leaf;
    const int64_t whole = starts_leaf ? leaf_rows[member.leaf] : 0;
    const int64_t own = padded_rows(member.rows, pad);
    const int64_t wanted = whole <= request.max_tokens ? std::max(own, whole) : own;
    if (plan.micro_batches.empty() || rows + wanted > request.max_tokens) {
      plan.micro_batches.emplace_back();
      rows = 0;
    }
    plan.micro_batches.back().push_back(i);
    rows += own;
    plan.micro_batch_rows = std::max(plan.micro_batch_rows, rows);
  }
  return plan;
}

LeafCursor::LeafCursor(const UpdatePlan& plan, Rows kind, int64_t pad) : plan_(plan), kind_(kind), pad_(pad) {
  for (const Member& member : plan.members) {
    const size_t leaf = static_cast<size_t>(member.leaf);
    if (leaf_rows_.size() <= leaf) leaf_rows_.resize(leaf + 1);
    leaf_rows_[leaf] += rows_of(member);
  }
  done_.resize(leaf_rows_.size());
}

std::vector<model::LeafRows> LeafCursor::next(const std::vector<size_t>& members) {
  std::vector<model::LeafRows> out;
  int64_t row = 0;
  for (const size_t i : members) {
    const Member& member = plan_.members[i];
    const size_t leaf = static_cast<size_t>(member.leaf);
    if (out.empty() || out.back().leaf != member.leaf) {
      model::LeafRows start;
      start.leaf = member.leaf;
      start.begin = row;
      start.rows_before = done_[leaf];
      start.begins = done_[leaf] == 0;
      out.push_back(start);
    }
    row += rows_of(member);
    done_[leaf] += rows_of(member);
    out.back().end = row;
    out.back().ends = done_[leaf] == leaf_rows_[leaf];
  }
  return out;
}

}  // namespace lockstep::trainer
