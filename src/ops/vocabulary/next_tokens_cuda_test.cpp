// SPDX-License-Identifier: Apache-2.0
// One after another and recorded as a graph.
#include "ops/vocabulary/next_tokens_cuda.h"

#include "cuda_arrays.h"
#include "device/cuda/error.h"
#include "device/cuda/graph.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_cuda_context;
using lockstep::testing::OnDevice;

constexpr int kSteps = 3;

void expect_steps(const cuda::Context& context, int64_t rows, bool graph) {
  std::vector<int32_t> ids, positions, tokens;
  std::vector<float> log_probs;
  std::vector<VocabularyDraw> draws;
  for (int32_t r = 0; r < rows; ++r) {
    ids.push_back(r % 7 == 6 ? -1 : r);
    positions.push_back(10 * r);
    tokens.push_back(1000 + r);
    log_probs.push_back(static_cast<float>(r) * -0.5F);
    draws.push_back({1, 2, 3, static_cast<uint32_t>(10 * r + 1), 4});
  }
  std::vector<int32_t> keys = positions;
  for (int32_t& k : keys) ++k;
  OnDevice<int32_t> d_ids(context, ids), d_positions(context, positions), d_run(context, positions),
      d_keys(context, keys), d_tokens(context, tokens), d_steps(context, std::vector<int32_t>{0});
  OnDevice<float> d_log_probs(context, log_probs);
  OnDevice<VocabularyDraw> d_draws(context, draws);
  OnDevice<DrawnRow> d_history(context, kSteps * rows);
  OnDevice<unsigned long long> d_faults(context, 2 * kSteps),
      d_words(context, std::vector<unsigned long long>{5, cuda::kNoFault});
  const auto launch = [&] {
    next_tokens_cuda(context, d_tokens.data(), d_log_probs.data(), rows,
                     {d_ids.data(), d_positions.data(), d_run.data(), d_keys.data(), d_draws.data()},
                     {d_steps.data(), d_history.data(), d_faults.data(), d_words.data()});
  };
  if (graph) {
    const cuda::Graph recorded(context, "a test", launch);
    EXPECT_EQ(d_steps.host()[0], 0);  // recording runs nothing
    for (int i = 0; i < kSteps; ++i) recorded.launch(context);
    context.synchronize();
  } else {
    for (int i = 0; i < kSteps; ++i) launch();
  }
  EXPECT_EQ(d_steps.host()[0], kSteps);
  const std::vector<DrawnRow> history = d_history.host();
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    const bool padding = ids[r] < 0;
    const int32_t moved = padding ? 0 : kSteps;
    EXPECT_EQ(d_ids.host()[r], padding ? -1 : tokens[r]);
    EXPECT_EQ(d_positions.host()[r], positions[r] + moved);
    EXPECT_EQ(d_run.host()[r], positions[r] + moved);
    EXPECT_EQ(d_keys.host()[r], keys[r] + moved);
    EXPECT_EQ(d_draws.host()[r].position, draws[r].position + static_cast<uint32_t>(moved));
    EXPECT_EQ(d_draws.host()[r].sample, 3U);
    for (size_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(history[step * static_cast<size_t>(rows) + r].token, padding ? 0 : tokens[r]);
      EXPECT_EQ(history[step * static_cast<size_t>(rows) + r].log_prob, padding ? 0.0F : log_probs[r]);
    }
  }
  for (size_t i = 0; i < 2 * kSteps; ++i) EXPECT_EQ(d_faults.host()[i], i % 2 == 0 ? 5 : cuda::kNoFault);
}

TEST(NextTokensCuda, RowsMoveOn) {
  LOCKSTEP_NEEDS_GPU();
  for_each_cuda_context([](const cuda::Context& context) {
    for (const int64_t rows : {1, 33, 300}) {
      expect_steps(context, rows, false);
      expect_steps(context, rows, true);
    }
  });
}

TEST(GraphCuda, WhatCanNotBeRecordedIsAnError) {
  LOCKSTEP_NEEDS_GPU();
  const cuda::Context context(0);
  try {
    const cuda::Graph graph(context, "a test", [&] { context.synchronize(); });
    FAIL();
  } catch (const cuda::Error& e) {
    EXPECT_NE(std::string(e.what()).find("waiting for the GPU"), std::string::npos) << e.what();
  }
  expect_steps(context, 5, true);  // the stream is as before
}

}  // namespace
}  // namespace lockstep::ops
