// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "cpu_contexts.h"
#include "ops/attention/attention_test_support.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::same_bits;
using ops::testing::ForwardResult;
using ops::testing::same_result;
using ops::testing::Sequence;
using ops::testing::whole_ref;

ForwardResult forward(const cpu::Context& context, const Sequence& s, const std::vector<AttentionRun>& runs) {
  ForwardResult result(s.shape, s.length);
  result.ok = attention_forward_cpu(context, s.shape, s.qkv.data(), s.ld(), runs.data(),
                                    static_cast<int64_t>(runs.size()), result.out.data(), s.width(),
                                    result.max_exponent.data(), result.inverse_sum.data());
  return result;
}

const std::vector<AttentionShape> kShapes = {{1, 1, 8},   {2, 2, 24},  {4, 2, 24}, {7, 1, 64}, {14, 2, 64},
                                             {2, 1, 128}, {1, 1, 256}, {3, 3, 10}, {6, 3, 2},  {2, 1, 90}};

TEST(AttentionForward, EqualsReferenceForEveryShape) {
  uint64_t seed = 1;
  for (const AttentionShape& shape : kShapes) {
    for (const int64_t length : {1, 15, 64, 97}) {
      SCOPED_TRACE("heads " + std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + ", size " +
                   std::to_string(shape.head_size) + ", length " + std::to_string(length));
      const Sequence s(shape, length, seed++, 2.0F);
      const ForwardResult want = whole_ref(s);
      ASSERT_TRUE(want.ok);
      for_each_context([&](const cpu::Context& context) {
        EXPECT_TRUE(same_result(want, forward(context, s, {s.run(0, 0, length)})));
      });
    }
  }
}

// Any cut of the rows into runs is the same bits: one prefill, chunks, token by token.
TEST(AttentionForward, PrefillChunksAndDecodeAgree) {
  const AttentionShape shape{4, 2, 8};
  uint64_t seed = 100;
  for (const int64_t length :
       {1, 15, 16, 17, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255, 256, 257, 511, 512, 513, 514, 1100}) {
    SCOPED_TRACE("length " + std::to_string(length));
    const Sequence s(shape, length, seed++, 3.0F);
    const ForwardResult want = whole_ref(s);
    ASSERT_TRUE(want.ok);
    for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
      if (!cpu::isa_available(isa)) continue;
      const cpu::Context context(isa == cpu::Isa::kScalar ? 1 : 3, isa);
      EXPECT_TRUE(same_result(want, forward(context, s, {s.run(0, 0, length)}))) << "one run";
      for (const int64_t chunk : {1, 31, 64, 200, 512}) {
        std::vector<AttentionRun> runs;
        for (int64_t first = 0; first < length; first += chunk)
          runs.push_back(s.run(first, first, std::min(chunk, length - first)));
        EXPECT_TRUE(same_result(want, forward(context, s, runs))) << "chunks of " << chunk;
      }
    }
  }
}

// A step of decoding, one run at a time: blocks that later tokens have not reached yet give the same bits,
// and so does a cache of stale finite keys behind the row's own position.
TEST(AttentionForward, KeysBehindTheRowDoNotMatter) {
  const AttentionShape shape{2, 1, 24};
  Sequence s(shape, 70, 7);
  const ForwardResult want = whole_ref(s);
  Sequence stale = s;
  lockstep::testing::TestRandom random(8);
  for (int64_t position = 40; position < 70; ++position) {
    for (int64_t x = shape.heads * shape.head_size; x < s.ld(); ++x)
      stale.qkv[position * s.ld() + x] = random.value() * 1e30F;
  }
  stale.fill_blocks();
  for_each_context([&](const cpu::Context& context) {
    ForwardResult got(shape, 70);
    const AttentionRun run = stale.run(0, 0, 40);
    ASSERT_TRUE(attention_forward_cpu(context, shape, stale.qkv.data(), s.ld(), &run, 1, got.out.data(),
                                      s.width(), nullptr, nullptr));
    EXPECT_TRUE(same_bits(want.out.data(), got.out.data(), 40 * s.width(), s.width()));
  });
}

// A batch of sequences in any order, threads cutting long keys into segments.
TEST(AttentionForward, DecodeBatchSplitsLongKeys) {
  const AttentionShape shape{2, 1, 16};
  std::vector<Sequence> sequences;
  std::vector<float> want;
  const std::vector<int64_t> lengths = {1500, 3, 700, 1024, 1025, 512};
  int64_t ld = 0;
  for (size_t i = 0; i < lengths.size(); ++i) sequences.emplace_back(shape, lengths[i], 50 + i, 4.0F);
  std::vector<float> q;
  std::vector<AttentionRun> runs;
  for (const Sequence& s : sequences) {
    ld = s.ld();
    q.insert(q.end(), s.qkv.end() - ld, s.qkv.end());
    runs.push_back(
        {static_cast<int64_t>(runs.size()), 1, s.length - 1, s.k_blocks.data(), s.v_blocks.data()});
    const ForwardResult all = whole_ref(s);
    want.insert(want.end(), all.out.end() - s.width(), all.out.end());
  }
  for_each_context([&](const cpu::Context& context) {
    std::vector<float> out = lockstep::testing::poisoned(static_cast<int64_t>(want.size()));
    std::vector<AttentionRun> reversed(runs.rbegin(), runs.rend());
    for (const auto& order : {runs, reversed}) {
      ASSERT_TRUE(attention_forward_cpu(context, shape, q.data(), ld, order.data(),
                                        static_cast<int64_t>(order.size()), out.data(), 32, nullptr,
                                        nullptr));
      EXPECT_TRUE(same_bits(want, out));
    }
  });
}

// Rising maxima far apart: old sums are dropped at a rise above 2^126, weights below 2^-40 are +0, and
// sums of tiny values reach subnormals and signed zeros.
TEST(AttentionForward, ExtremeScoresAndTinyValues) {
  const AttentionShape shape{2, 1, 8};
  for (const float key_scale : {1.0F, 30.0F, 3000.0F}) {
    for (const float value_scale : {1.0F, 1e-38F, 3e-45F}) {
      SCOPED_TRACE(std::to_string(key_scale) + " " + std::to_string(value_scale));
      Sequence s(shape, 700, 9, 5.0F);
      lockstep::testing::TestRandom random(10);
      for (int64_t row = 0; row < s.length; ++row) {
        for (int64_t i = 16; i < 24; ++i)
          s.qkv[row * s.ld() + i] *= key_scale * static_cast<float>(row) / 700;
        for (int64_t i = 24; i < 32; ++i) s.qkv[row * s.ld() + i] = random.value() * value_scale;
      }
      s.fill_blocks();
      const ForwardResult want = whole_ref(s);
      ASSERT_TRUE(want.ok);
      for_each_context([&](const cpu::Context& context) {
        EXPECT_TRUE(same_result(want, forward(context, s, {s.run(0, 0, s.length)})));
        EXPECT_TRUE(same_result(want, forward(context, s, {s.run(0, 0, 65), s.run(65, 65, 635)})));
      });
    }
  }
}

// 64 keys of score 0 and huge values, then (one block, or one segment, later) a key of score `rise` and value
// 0 of either sign. What is left of the old sum is 2^-rise of it, and exactly +0 beyond 126.
TEST(AttentionForward, OldSumsEndAtARiseOf126) {
  const AttentionShape shape{1, 1, 2};
  for (const int64_t length : {65, 513}) {
    for (const float rise : {125.0F, 126.0F, 127.0F}) {
      Sequence s(shape, length, 1, 0.0F);
      for (int64_t row = 0; row < length; ++row) {
        s.qkv[row * 6] = 1.0F;
        s.qkv[row * 6 + 4] = row < 64 ? -0x1p100F : -0.0F;
        s.qkv[row * 6 + 5] = row < 64 ? 0x1p100F : 0.0F;
      }
      s.qkv[(length - 1) * 6 + 2] = rise * 0.98025814F;  // ln 2 * sqrt(2)
      s.fill_blocks();
      const ForwardResult want = whole_ref(s);
      ASSERT_TRUE(want.ok);
      EXPECT_EQ(want.max_exponent.back(), rise);
      const float last = want.out.back();
      if (rise > 126.0F) {
        for (int64_t i = 2 * length - 2; i < 2 * length; ++i)
          EXPECT_EQ(lockstep::testing::bits_of(want.out[i]), 0U);
      } else {
        // Against the real value, for the reference itself: the score is rise to a few roundings of 2^-24 *
        // 126, about 3e-5, which is the relative error of 2^-rise. Bits are compared below.
        EXPECT_NEAR(last, 64 * 0x1p100 * std::exp2(-rise), 1e-4 * 64 * 0x1p100 * std::exp2(-rise));
      }
      for_each_context([&](const cpu::Context& context) {
        EXPECT_TRUE(same_result(want, forward(context, s, {s.run(0, 0, length)})));
        EXPECT_TRUE(same_result(
            want, forward(context, s, {s.run(0, 0, length - 1), s.run(length - 1, length - 1, 1)})));
      });
    }
  }
}

TEST(AttentionForward, RefusesScoresOutOfRangeOnlyWhereVisible) {
  const AttentionShape shape{1, 1, 8};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F, 4.2e6F}) {
    Sequence s(shape, 90, 11);
    for (int64_t row = 0; row < 90; ++row) s.qkv[row * s.ld()] = 1.0F;
    for (int64_t i = 0; i < 8; ++i) s.qkv[80 * s.ld() + 8 + i] = i == 0 ? bad : 0.0F;
    s.fill_blocks();
    ForwardResult ref(shape, 90);
    for (const auto& [rows, ok] : {std::pair<int64_t, bool>{80, true}, {81, false}}) {
      const AttentionRun run = s.run(0, 0, rows);
      EXPECT_EQ(
          attention_forward_ref(shape, s.qkv.data(), s.ld(), &run, 1, ref.out.data(), 8, nullptr, nullptr),
          ok);
      for_each_context([&, rows = rows, ok = ok](const cpu::Context& context) {
        EXPECT_EQ(forward(context, s, {s.run(0, 0, rows)}).ok, ok) << bad;
      });
    }
  }
}

// Outside check: softmax attention in binary64 with libm. The weights are within 2^-22 relative of exact
// ones (polynomial and rounding), scores carry (d+2) roundings of terms of size at most sum |q k|, sums
// n roundings; for these sizes all is below 1e-5 of the largest |v|.
TEST(AttentionForward, EqualsSoftmaxInBinary64) {
  const AttentionShape shape{4, 2, 24};
  const Sequence s(shape, 600, 12, 1.5F);
  const ForwardResult got = whole_ref(s);
  ASSERT_TRUE(got.ok);
  for (const int64_t row : {0, 1, 63, 64, 511, 512, 599}) {
    for (int64_t head = 0; head < 4; ++head) {
      const float* q = s.qkv.data() + row * s.ld() + head * 24;
      std::vector<double> w(row + 1);
      double sum = 0;
      for (int64_t j = 0; j <= row; ++j) {
        const float* k = s.qkv.data() + j * s.ld() + (4 + head / 2) * 24;
        double dot = 0;
        for (int64_t i = 0; i < 24; ++i) dot += static_cast<double>(q[i]) * k[i];
        w[j] = std::exp(dot / std::sqrt(24.0));
        sum += w[j];
      }
      for (int64_t i = 0; i < 24; ++i) {
        double o = 0;
        for (int64_t j = 0; j <= row; ++j) o += w[j] / sum * s.qkv[j * s.ld() + (6 + head / 2) * 24 + i];
        EXPECT_NEAR(got.out[row * s.width() + head * 24 + i], o, 1e-5 * 3);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
