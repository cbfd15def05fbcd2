// SPDX-License-Identifier: Apache-2.0
#include "data/prompt_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/sha256.h"
#include "data/python_random.h"
#include "numerics/philox.h"

namespace lockstep::data {
namespace {

std::string hash_of(const std::vector<int32_t>& rows) {
  return sha256_hex({reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(int32_t)});
}

TEST(PromptOrder, MilesShuffleOfGsm8k) {
  PromptOrder order(OrderKind::kMiles, 42, 7473);
  EXPECT_EQ(hash_of(order.permutation(0)),
            "bdf1d52d7981dfbc9539e4b917e666407a57b5ddfa347c26117b8c4effa5d7c7");
  EXPECT_EQ(hash_of(order.permutation(1)),
            "6ab3955986df81593bc6d96625695989411fe819206776972404e8593a43ef51");
  const int64_t first[] = {1458, 3620, 6312, 4833, 5032};
  const int64_t second[] = {5027, 7349, 2620, 6644, 2466};
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(order.row_at(i), first[i]);
    EXPECT_EQ(order.row_at(7473 + i), second[i]);
  }
}

TEST(PromptOrder, LockstepIsTheSortByDraws) {
  constexpr int64_t kRows = 1000;
  PromptOrder order(OrderKind::kLockstep, 42, kRows);
  for (const uint64_t epoch : {0U, 1U, 7U}) {
    std::vector<int32_t> rows = order.permutation(epoch);
    for (size_t i = 1; i < rows.size(); ++i) {
      const auto draw = [&](int32_t row) {
        return numerics::draw(42, numerics::Purpose::kShuffle, static_cast<uint64_t>(row),
                              static_cast<uint32_t>(epoch), 0);
      };
      ASSERT_LT(draw(rows[i - 1]), draw(rows[i]));
    }
    std::sort(rows.begin(), rows.end());
    for (int32_t i = 0; i < kRows; ++i) ASSERT_EQ(rows[static_cast<size_t>(i)], i);
  }
  const std::vector<int32_t> first = order.permutation(0);
  EXPECT_NE(first, order.permutation(1));
  EXPECT_NE(first, PromptOrder(OrderKind::kLockstep, 43, kRows).permutation(0));
}

// Any place may be asked for first: a resumed run goes on with the same list.
TEST(PromptOrder, NoState) {
  for (const OrderKind kind : {OrderKind::kFile, OrderKind::kLockstep, OrderKind::kMiles}) {
    PromptOrder ascending(kind, 5, 13);
    std::vector<int64_t> rows;
    for (uint64_t i = 0; i < 40; ++i) rows.push_back(ascending.row_at(i));
    PromptOrder descending(kind, 5, 13);
    for (uint64_t i = 40; i-- > 0;) EXPECT_EQ(descending.row_at(i), rows[i]);
    EXPECT_EQ(ascending.epoch_of(25), 1U);
    EXPECT_EQ(ascending.epoch_of(26), 2U);
    if (kind == OrderKind::kFile) {
      for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(rows[i], static_cast<int64_t>(i % 13));
    }
  }
  EXPECT_EQ(PromptOrder(OrderKind::kMiles, 1, 1).row_at(5), 0);
}

TEST(PromptOrder, Names) {
  EXPECT_EQ(order_kind(false, "miles").value(), OrderKind::kFile);
  EXPECT_EQ(order_kind(true, "miles").value(), OrderKind::kMiles);
  EXPECT_EQ(order_kind(true, "lockstep").value(), OrderKind::kLockstep);
  EXPECT_FALSE(order_kind(true, "random").ok());
}

// random.seed(s); [random.getrandbits(32) for _ in range(3)]
TEST(PythonRandom, Words) {
  struct Case {
    uint64_t seed;
    uint32_t words[3];
  };
  const Case cases[] = {{0ULL, {3626764237U, 1654615998U, 3255389356U}},
                        {1ULL, {577090037U, 2444712010U, 3639700191U}},
                        {42ULL, {2746317213U, 478163327U, 107420369U}},
                        {4294967295ULL, {2728839433U, 2661025012U, 872737089U}},
                        {4294967296ULL, {485306839U, 1508871100U, 1794561286U}},
                        {9223372036854788153ULL, {1308997459U, 1668775168U, 912389232U}},
                        {18446744073709551615ULL, {93740670U, 1068495656U, 1452108352U}}};
  for (const Case& c : cases) {
    PythonRandom random(c.seed);
    for (const uint32_t word : c.words) EXPECT_EQ(random.next_word(), word) << c.seed;
  }
}

}  // namespace
}  // namespace lockstep::data
