// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding.h"

#include <algorithm>
#include <limits>

#include "cpu_contexts.h"
#include "numerics/fixed_point.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::poisoned;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

std::vector<int32_t> random_ids(int64_t rows, int64_t vocab, uint64_t seed) {
  TestRandom random(seed);
  std::vector<int32_t> ids(rows);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(vocab));
  return ids;
}

TEST(Embedding, EqualsReference) {
  for (const int64_t h : {1, 3, 63, 64, 65, 200, 896}) {
    for (const int64_t rows : {0, 1, 17, 150}) {
      constexpr int64_t kVocab = 20;
      TestRandom random(h + rows);
      const std::vector<float> table = random.values(kVocab * h);
      const std::vector<float> dh = random.values(rows * h, 1e-3F);
      const std::vector<int32_t> ids = random_ids(rows, kVocab, h);
      std::vector<float> out = poisoned(rows * h);
      embedding_forward_ref(table.data(), ids.data(), rows, h, out.data());
      std::vector<int64_t> image(kVocab * h, 12345);
      EXPECT_TRUE(embedding_gradient_ref(dh.data(), ids.data(), rows, h, 1.0F, image.data()));
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> got = poisoned(rows * h);
        embedding_forward_cpu(context, table.data(), ids.data(), rows, h, got.data());
        EXPECT_TRUE(same_bits(out, got));
        std::vector<int64_t> got_image(kVocab * h, 12345);
        EXPECT_TRUE(embedding_gradient_cpu(context, dh.data(), ids.data(), rows, h, 1.0F, got_image.data()));
        EXPECT_TRUE(same_bits(image, got_image));
      });
    }
  }
}

// One token 4,000 times: every add goes to one row; 20 repetitions give one image, in any order of tokens.
TEST(Embedding, OneTokenManyTimes) {
  constexpr int64_t kRows = 4000;
  constexpr int64_t kHidden = 70;
  std::vector<float> dh = TestRandom(1).values(kRows * kHidden, 1e-2F);
  const std::vector<int32_t> ids(kRows, 3);
  std::vector<int64_t> want(5 * kHidden, 0);
  ASSERT_TRUE(embedding_gradient_ref(dh.data(), ids.data(), kRows, kHidden, 1.0F, want.data()));
  const cpu::Context context(7, cpu::Isa::kScalar);
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::vector<int64_t> got(5 * kHidden, 0);
    ASSERT_TRUE(embedding_gradient_cpu(context, dh.data(), ids.data(), kRows, kHidden, 1.0F, got.data()));
    EXPECT_TRUE(same_bits(want, got));
    std::rotate(dh.begin(), dh.begin() + 17 * kHidden, dh.end());
  }
}

TEST(Embedding, LeavesOutWhatIsOutOfRange) {
  for (const float bad : {1.0F, -1.0F, std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> dh(2 * 100, 0.25F);
    dh[150] = bad;
    const std::vector<int32_t> ids = {1, 1};
    std::vector<int64_t> want(200, 0);
    EXPECT_FALSE(embedding_gradient_ref(dh.data(), ids.data(), 2, 100, 1.0F, want.data()));
    EXPECT_EQ(want[150], numerics::gradient_to_fixed(0.25F));
    EXPECT_EQ(want[149], 2 * numerics::gradient_to_fixed(0.25F));
    for_each_context([&](const cpu::Context& context) {
      std::vector<int64_t> got(200, 0);
      EXPECT_FALSE(embedding_gradient_cpu(context, dh.data(), ids.data(), 2, 100, 1.0F, got.data()));
      EXPECT_TRUE(same_bits(want, got));
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
