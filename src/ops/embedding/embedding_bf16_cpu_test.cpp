// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding_bf16_cpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using testing::for_each_context;
using testing::same_bits;
using testing::TestRandom;

TEST(EmbeddingBf16Cpu, EqualsTheReference) {
  for (const int64_t h : {1, 64, 65, 130}) {
    constexpr int64_t kRows = 70, kVocab = 9;
    TestRandom random(3);
    std::vector<numerics::Bf16> table(static_cast<size_t>(kVocab * h)), dh(static_cast<size_t>(kRows * h));
    for (numerics::Bf16& x : table) x = static_cast<numerics::Bf16>(random.next());
    for (numerics::Bf16& x : dh) {
      x = random.below(50) == 0 ? static_cast<numerics::Bf16>(random.next())
                                : numerics::float_to_bfloat16(random.value());
    }
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kRows; ++i) ids.push_back(static_cast<int32_t>(random.below(kVocab)));
    std::vector<numerics::Bf16> want(dh.size());
    std::vector<int64_t> image(table.size(), 11);
    embedding_forward_bf16_ref(table.data(), ids.data(), kRows, h, want.data());
    const bool good = embedding_gradient_bf16_ref(dh.data(), ids.data(), kRows, h, 4.0F, image.data());
    for_each_context([&](const cpu::Context& context) {
      std::vector<numerics::Bf16> got(dh.size(), 0xFFFF);
      std::vector<int64_t> sums(table.size(), 11);
      embedding_forward_bf16_cpu(context, table.data(), ids.data(), kRows, h, got.data());
      EXPECT_TRUE(same_bits(want, got));
      EXPECT_EQ(good,
                embedding_gradient_bf16_cpu(context, dh.data(), ids.data(), kRows, h, 4.0F, sums.data()));
      EXPECT_TRUE(same_bits(image, sums));
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
