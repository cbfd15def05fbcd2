// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_bf16_cpu.h"
#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu_contexts.h"
#include "numerics/fixed_point.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using testing::for_each_context;
using testing::poisoned;
using testing::same_bits;
using testing::TestRandom;

using Values = std::vector<Bf16>;

Values values(int64_t n, uint64_t seed, bool specials = false) {
  TestRandom random(seed);
  Values out(static_cast<size_t>(n));
  for (Bf16& x : out) {
    x = numerics::float_to_bfloat16(random.value());
    if (specials && random.below(30) == 0) x = static_cast<Bf16>(random.next());
  }
  return out;
}

struct Shape {
  int64_t m, n, k;
};
const std::vector<Shape> kShapes = {{1, 1, 1},     {1, 17, 33},     {3, 16, 16},
                                    {5, 40, 1000}, {130, 33, 50},   {2, 35, 2100},
                                    {2, 3, 1024},  {129, 16, 1025}, {7, 300, 8}};

TEST(MatmulBf16Cpu, ForwardEqualsTheReference) {
  for (const bool specials : {false, true}) {
    for (const auto& [m, n, k] : kShapes) {
      const Values x = values(m * (k + 3), 1, specials);
      const Values w = values(n * k, 2, specials);
      std::vector<float> want = poisoned(m * (n + 2));
      matmul_bf16_forward_ref(x.data(), k + 3, w.data(), m, n, k, want.data(), n + 2);
      for_each_context([&](const cpu::Context& context) {
        PackedMatrixBf16 packed;
        packed.pack(context, w.data(), n, k);
        std::vector<float> got = poisoned(m * (n + 2));
        matmul_bf16_forward_cpu(context, x.data(), k + 3, packed, m, got.data(), n + 2);
        EXPECT_TRUE(same_bits(want.data(), got.data(), m * (n + 2), n + 2)) << m << " " << n << " " << k;
      });
    }
  }
}

TEST(MatmulBf16Cpu, InputGradientEqualsTheReference) {
  std::vector<Shape> shapes = kShapes;
  shapes.push_back({2, 16384 + 100, 3});  // a second chunk
  shapes.push_back({1, 2 * 16384 + 1, 2});
  for (const bool specials : {false, true}) {
    for (const auto& [m, n, k] : shapes) {
      const Values dy = values(m * (n + 1), 3, specials);
      const Values w = values(n * k, 4, specials);
      std::vector<float> want = poisoned(m * (k + 2));
      matmul_bf16_input_gradient_ref(dy.data(), n + 1, w.data(), m, n, k, want.data(), k + 2);
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> got = poisoned(m * (k + 2));
        matmul_bf16_input_gradient_cpu(context, dy.data(), n + 1, w.data(), m, n, k, got.data(), k + 2);
        EXPECT_TRUE(same_bits(want.data(), got.data(), m * (k + 2), k + 2)) << m << " " << n << " " << k;
      });
    }
  }
}

// Rows in calls that end at `cuts`; scratch starts as NaN.
template <class Call>
bool in_pieces(int64_t n, int64_t k, const std::vector<int64_t>& cuts, float bound,
               std::vector<int64_t>* image, const Call& call) {
  std::vector<float> carry = poisoned(n * k);
  std::vector<float> sum = poisoned(n * k);
  bool in_range = true;
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    WeightGradientTarget target;
    target.begins = begin == 0;
    target.ends = end == cuts.back();
    target.rows_before = begin;
    target.carry = carry.data();
    target.chunk_sum = sum.data();
    target.image = image->data();
    target.bound = bound;
    in_range = call(begin, end - begin, target) && in_range;
    begin = end;
  }
  return in_range;
}

TEST(MatmulBf16Cpu, WeightGradientEqualsTheReference) {
  struct Case {
    int64_t rows, n, k;
    std::vector<std::vector<int64_t>> cuts;
    bool specials;
  };
  const std::vector<Case> cases = {
      {16, 1, 1, {{16}}, false},
      {64, 65, 130, {{64}, {16, 64}, {16, 32, 48, 64}}, false},
      {48, 7, 33, {{48}, {32, 48}}, true},
      {1600, 3, 20, {{1600}, {1024, 1600}, {1040, 1600}}, false},
      {16384 + 48,
       2,
       3,
       {{16384 + 48}, {16384, 16384 + 48}, {16, 16400, 16384 + 48}, {8000, 16384 + 48}},
       false},
      {2 * 16384 + 16,
       1,
       2,
       {{2 * 16384 + 16}, {16384, 2 * 16384, 2 * 16384 + 16}, {16400, 2 * 16384 + 16}},
       false},
  };
  for (const Case& c : cases) {
    const Values dy = values(c.rows * (c.n + 1), 5, c.specials);
    const Values x = values(c.rows * (c.k + 1), 6, c.specials);
    const float bound = c.specials ? 2.0F : 1000.0F;
    for (const std::vector<int64_t>& cuts : c.cuts) {
      std::vector<int64_t> want(static_cast<size_t>(c.n * c.k), 5);
      const bool good = in_pieces(c.n, c.k, {c.rows}, bound, &want,
                                  [&](int64_t begin, int64_t rows, const WeightGradientTarget& target) {
                                    return matmul_bf16_weight_gradient_ref(
                                        dy.data() + begin * (c.n + 1), c.n + 1, x.data() + begin * (c.k + 1),
                                        c.k + 1, rows, c.n, c.k, target);
                                  });
      EXPECT_EQ(good, !c.specials);
      for_each_context([&](const cpu::Context& context) {
        std::vector<int64_t> got(static_cast<size_t>(c.n * c.k), 5);
        EXPECT_EQ(good, in_pieces(c.n, c.k, cuts, bound, &got,
                                  [&](int64_t begin, int64_t rows, const WeightGradientTarget& target) {
                                    return matmul_bf16_weight_gradient_cpu(
                                        context, dy.data() + begin * (c.n + 1), c.n + 1,
                                        x.data() + begin * (c.k + 1), c.k + 1, rows, c.n, c.k, target);
                                  }));
        EXPECT_TRUE(same_bits(want, got))
            << c.rows << " " << c.n << " " << c.k << ", " << cuts.size() << " calls";
      });
    }
  }
}

TEST(MatmulBf16Cpu, EpiloguesEqualTheReference) {
  constexpr int64_t kM = 13, kN = 24;
  TestRandom random(9);
  const std::vector<float> y = random.values(kM * kN);
  const Values bias = values(kN, 10);
  const Values residual = values(kM * kN, 11);
  const std::vector<float> cosines = random.values(20 * 4);
  const std::vector<float> sines = random.values(20 * 4);
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < kM; ++i) positions.push_back(static_cast<int32_t>(random.below(20)));
  const RopeEpilogue rope{cosines.data(), sines.data(), positions.data(), 8, 16};
  std::vector<float> rotated = y;
  matmul_bf16_bias_ref(bias.data(), kM, kN, rotated.data(), kN);
  matmul_bf16_rope_ref(rope, kM, rotated.data(), kN);
  Values want_qkv(kM * kN), want_residual(kM * kN), want_gate_up(kM * kN), want_act(kM * kN / 2);
  matmul_bf16_round_ref(rotated.data(), kN, kM, kN, want_qkv.data(), kN);
  matmul_bf16_residual_ref(y.data(), kN, residual.data(), kN, kM, kN, want_residual.data(), kN);
  matmul_bf16_swiglu_ref(y.data(), kN, kM, kN / 2, want_gate_up.data(), kN, want_act.data(), kN / 2);
  for_each_context([&](const cpu::Context& context) {
    std::vector<float> scratch = y;
    Values got(kM * kN, 0xFFFF);
    EpilogueBf16 epilogue;
    epilogue.bias = bias.data();
    epilogue.rope = &rope;
    matmul_bf16_epilogue_cpu(context, scratch.data(), kN, kM, kN, epilogue, got.data(), kN);
    EXPECT_TRUE(same_bits(want_qkv, got));
    scratch = y;
    got = residual;
    EpilogueBf16 sum;
    sum.residual = got.data();
    sum.ld_residual = kN;
    matmul_bf16_epilogue_cpu(context, scratch.data(), kN, kM, kN, sum, got.data(), kN);
    EXPECT_TRUE(same_bits(want_residual, got));
    Values gate_up(kM * kN, 0xFFFF), act(kM * kN / 2, 0xFFFF);
    matmul_bf16_swiglu_cpu(context, y.data(), kN, kM, kN / 2, gate_up.data(), kN, act.data(), kN / 2);
    EXPECT_TRUE(same_bits(want_gate_up, gate_up));
    EXPECT_TRUE(same_bits(want_act, act));
  });
}

}  // namespace
}  // namespace lockstep::ops
