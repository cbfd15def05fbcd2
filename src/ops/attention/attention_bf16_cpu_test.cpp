// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_bf16_cpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using numerics::Bf16;
using testing::for_each_context;
using testing::poisoned;
using testing::same_bits;
using testing::TestRandom;

using Values = std::vector<Bf16>;

Values values(int64_t n, uint64_t seed, float scale = 1.0F) {
  TestRandom random(seed);
  Values out(static_cast<size_t>(n));
  for (Bf16& x : out) x = numerics::float_to_bfloat16(random.value() * scale);
  return out;
}

struct RunSpec {
  int64_t rows, first_position;
};

// Rows of several sequences with their keys and values in blocks; entries past the keys are 0xFFFF.
struct ForwardCase {
  AttentionShape shape;
  int64_t rows = 0;
  Values q;
  std::vector<Values> blocks;
  std::vector<std::vector<const Bf16*>> k, v;
  std::vector<AttentionRunBf16> runs;

  ForwardCase(const AttentionShape& s, const std::vector<RunSpec>& specs, float scale) : shape(s) {
    uint64_t seed = 100;
    for (const RunSpec& spec : specs) {
      const int64_t keys = spec.first_position + spec.rows;
      const int64_t ld = 2 * shape.kv_heads * shape.head_size;
      const Values kv = values(keys * ld, ++seed, scale);
      std::vector<Bf16*> k_blocks, v_blocks;
      for (int64_t b = 0; b < (keys + 63) / 64; ++b) {
        for (std::vector<Bf16*>* list : {&k_blocks, &v_blocks}) {
          blocks.emplace_back(static_cast<size_t>(kv_block_elements_bf16(shape)), Bf16{0xFFFF});
          list->push_back(blocks.back().data());
        }
      }
      write_kv_blocks_bf16(shape, kv.data(), kv.data() + ld / 2, ld, keys, 0, k_blocks.data(),
                           v_blocks.data());
      k.emplace_back(k_blocks.begin(), k_blocks.end());
      v.emplace_back(v_blocks.begin(), v_blocks.end());
      AttentionRunBf16 run;
      run.first_row = rows;
      run.rows = spec.rows;
      run.first_position = spec.first_position;
      runs.push_back(run);
      rows += spec.rows;
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i].k_blocks = k[i].data();
      runs[i].v_blocks = v[i].data();
    }
    q = values(rows * ldq(), 7, scale);
  }
  int64_t ldq() const { return shape.heads * shape.head_size + 3; }
};

void expect_forward(const AttentionShape& shape, const std::vector<RunSpec>& specs, float scale) {
  const ForwardCase c(shape, specs, scale);
  const int64_t width = shape.heads * shape.head_size;
  const int64_t n_runs = static_cast<int64_t>(c.runs.size());
  Values want(static_cast<size_t>(c.rows * width), 0xFFFF);
  std::vector<float> want_m = poisoned(c.rows * shape.heads), want_r = want_m;
  ASSERT_TRUE(attention_forward_bf16_ref(shape, c.q.data(), c.ldq(), c.runs.data(), n_runs, want.data(),
                                         width, want_m.data(), want_r.data()));
  for_each_context([&](const cpu::Context& context) {
    Values got(want.size(), 0xFFFF);
    std::vector<float> m = poisoned(c.rows * shape.heads), r = m;
    ASSERT_TRUE(attention_forward_bf16_cpu(context, shape, c.q.data(), c.ldq(), c.runs.data(), n_runs,
                                           got.data(), width, m.data(), r.data()));
    EXPECT_TRUE(same_bits(want.data(), got.data(), c.rows * width, width));
    EXPECT_TRUE(same_bits(want_m, m));
    EXPECT_TRUE(same_bits(want_r, r));
    ASSERT_TRUE(attention_forward_bf16_cpu(context, shape, c.q.data(), c.ldq(), c.runs.data(), n_runs,
                                           got.data(), width, nullptr, nullptr));
    EXPECT_TRUE(same_bits(want, got));
  });
}

TEST(AttentionBf16Cpu, ForwardEqualsTheReference) {
  for (const float scale : {0.3F, 1.0F, 6.0F}) {
    expect_forward({2, 1, 2}, {{1, 0}}, scale);
    expect_forward({4, 2, 16}, {{1, 0}, {3, 5}, {70, 0}, {1, 63}, {1, 64}}, scale);
    expect_forward({6, 2, 24}, {{33, 17}, {1, 127}}, scale);
    expect_forward({3, 3, 40}, {{20, 50}}, scale);
    expect_forward({7, 1, 64}, {{2, 1030}, {1, 510}, {4, 510}, {130, 0}}, scale);
  }
}

TEST(AttentionBf16Cpu, ForwardRefusesScoresOutOfRange) {
  const ForwardCase c({2, 1, 16}, {{4, 60}}, 3000.0F);
  for_each_context([&](const cpu::Context& context) {
    Values out(static_cast<size_t>(c.rows * 32));
    EXPECT_FALSE(attention_forward_bf16_cpu(context, c.shape, c.q.data(), c.ldq(), c.runs.data(), 1,
                                            out.data(), 32, nullptr, nullptr));
  });
}

void expect_backward(const AttentionShape& shape, const std::vector<int64_t>& lengths, int64_t chunk,
                     bool undo, float scale) {
  const int64_t d = shape.head_size;
  const int64_t width = shape.heads * d;
  const int64_t ld = width + 2 * shape.kv_heads * d;
  std::vector<AttentionSample> samples;
  int64_t rows = 0;
  for (const int64_t n : lengths) {
    samples.push_back({rows, rows + n});
    rows += (n + 15) / 16 * 16;
  }
  const Values qkv = values(rows * ld, 21, scale);
  const Values d_out = values(rows * width, 22);
  const Values out = values(rows * width, 23);
  std::vector<float> m(static_cast<size_t>(rows * shape.heads)), r(m.size());
  TestRandom random(24);
  for (float& x : m) x = static_cast<float>(3 + random.below(2));  // a little above the scores
  for (float& x : r) x = 1e4F * (1.5F + random.value());
  const std::vector<float> cosines = random.values(rows * d);
  const std::vector<float> sines = random.values(rows * d);
  AttentionRope rope;
  if (undo) rope = {cosines.data(), sines.data()};
  Values want(static_cast<size_t>(rows * ld), 0xFFFF);
  attention_backward_bf16_ref(shape, qkv.data(), ld, out.data(), d_out.data(), m.data(), r.data(),
                              samples.data(), static_cast<int64_t>(samples.size()), rope, want.data(), chunk);
  for_each_context([&](const cpu::Context& context) {
    Values got(want.size(), 0xFFFF);
    attention_backward_bf16_cpu(context, shape, qkv.data(), ld, out.data(), d_out.data(), m.data(), r.data(),
                                samples.data(), static_cast<int64_t>(samples.size()), rope, got.data(),
                                chunk);
    EXPECT_TRUE(same_bits(want.data(), got.data(), rows * ld, ld))
        << "head size " << d << ", chunk " << chunk;
  });
}

TEST(AttentionBf16Cpu, BackwardEqualsTheReference) {
  for (const float scale : {0.3F, 1.0F}) {
    expect_backward({2, 1, 2}, {1}, 16384, true, scale);
    expect_backward({4, 2, 16}, {1, 15, 16, 17, 64, 65, 130}, 16384, true, scale);
    expect_backward({6, 2, 24}, {90}, 16384, false, scale);
    expect_backward({3, 3, 40}, {20, 5}, 16384, true, scale);
    expect_backward({7, 1, 64}, {150}, 16384, true, scale);
    expect_backward({4, 1, 16}, {150, 40}, 32, true, scale);  // many chunks
    expect_backward({4, 2, 8}, {200}, 112, true, scale);      // chunks that end inside a tile
  }
}

}  // namespace
}  // namespace lockstep::ops
