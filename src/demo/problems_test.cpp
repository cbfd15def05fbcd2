// SPDX-License-Identifier: Apache-2.0
#include "demo/problems.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/sha256.h"

namespace lockstep::demo {
namespace {

constexpr uint64_t kSeed = 42;
constexpr int64_t kTest = 512;

using Tuple = std::tuple<int, char, int, char, int>;
Tuple tuple_of(const Arithmetic& a) {
  return {a.operands[0], a.operations[0], a.operands[1], a.operations[1], a.operands[2]};
}

TEST(Problems, SameSeedSameBytes) {
  const ProblemSet problems = make_problems(kSeed, kTest);
  const auto rows = make_warmup_rows(kSeed, problems, {});
  EXPECT_EQ(sha256_hex(problems_jsonl(problems.train)),
            "8bf2ed69513fd0be5ecaf274b31646bb29aedda74731698e6c1cdeacb56c4d50");
  EXPECT_EQ(sha256_hex(problems_jsonl(problems.test)),
            "d2b63ed2bf1d30e9f4b7a917b3557085fef418af87ceb5e835b0ff910eb7de38");
  EXPECT_EQ(sha256_hex(warmup_jsonl(rows)),
            "6af98ea8ac44672f4a9b41d3ea3cf3086cbfeba5251ff77bdd8a4942ce6d5cf3");
  EXPECT_NE(problems_jsonl(make_problems(kSeed + 1, kTest).test), problems_jsonl(problems.test));
}

TEST(Problems, TrainAndTestShareNeitherTupleNorQuestion) {
  for (const uint64_t seed : {1, 2, 3, 42}) {
    const ProblemSet problems = make_problems(seed, kTest);
    ASSERT_EQ(problems.test.size(), static_cast<size_t>(kTest));
    std::set<Tuple> tuples;
    std::set<std::string> questions;
    for (const Problem& problem : problems.test) {
      EXPECT_TRUE(tuples.insert(tuple_of(problem.arithmetic)).second) << problem.question;
      EXPECT_TRUE(questions.insert(problem.question).second) << problem.question;
    }
    for (const Problem& problem : problems.train) {
      EXPECT_FALSE(tuples.count(tuple_of(problem.arithmetic))) << problem.question;
      EXPECT_FALSE(questions.count(problem.question)) << problem.question;
    }
    for (const WarmupRow& row : make_warmup_rows(seed, problems, {})) {
      ASSERT_FALSE(tuples.count(tuple_of(row.problem.arithmetic))) << row.problem.question;
      ASSERT_FALSE(questions.count(row.problem.question)) << row.problem.question;
    }
  }
}

TEST(Problems, EveryTupleOnceAndWithinRange) {
  std::set<Tuple> tuples;
  for (const Arithmetic& arithmetic : all_arithmetic()) {
    tuples.insert(tuple_of(arithmetic));
    EXPECT_GE(arithmetic.middle(), 1);
    EXPECT_GE(arithmetic.result(), 0);
    EXPECT_LE(arithmetic.result(), 27);
  }
  // ++ 729; +- 729 less the C(9,3) = 84 with a + b < c; -+ 36 * 9; -- the sum over m = a - b >= 1 of (9 - m)
  // * m.
  EXPECT_EQ(tuples.size(), 729U + (729 - 84) + 36 * 9 + 120);
  EXPECT_EQ(tuples.size(), all_arithmetic().size());
  const ProblemSet problems = make_problems(kSeed, kTest);
  EXPECT_EQ(problems.train.size() + problems.test.size(), tuples.size());
}

TEST(Problems, AnswersAreRight) {
  const auto check = [](const Problem& problem) {
    int a = 0, b = 0, m1 = 0, m2 = 0, c = 0, r = 0, answer = 0;
    char op1 = 0, op2 = 0;
    ASSERT_EQ(std::sscanf(problem.worked().c_str(), "%1d%c%1d=%d\n%d%c%1d=%d\n#### %d", &a, &op1, &b, &m1,
                          &m2, &op2, &c, &r, &answer),
              9)
        << problem.worked();
    EXPECT_EQ(op1 == '+' ? a + b : a - b, m1);
    EXPECT_EQ(m1, m2);
    EXPECT_EQ(op2 == '+' ? m2 + c : m2 - c, r);
    EXPECT_EQ(r, answer);
    EXPECT_EQ(problem.direct(), "#### " + std::to_string(r));
    // The question tells the operands in order.
    std::string digits;
    for (const char ch : problem.question) {
      if (ch >= '0' && ch <= '9') digits += ch;
    }
    EXPECT_EQ(digits, std::to_string(a) + std::to_string(b) + std::to_string(c)) << problem.question;
    EXPECT_EQ(problem.question.find('{'), std::string::npos) << problem.question;
  };
  const ProblemSet problems = make_problems(kSeed, kTest);
  for (const Problem& problem : problems.train) check(problem);
  for (const Problem& problem : problems.test) check(problem);
}

TEST(Problems, WarmupTurnsFromWorkedToDirect) {
  const WarmupPlan plan;
  const auto rows = make_warmup_rows(kSeed, make_problems(kSeed, kTest), plan);
  ASSERT_EQ(rows.size(), 22400U);
  const size_t turn = 980 * 16;  // 70 % of 1,400 batches
  double early = 0, late = 0;
  for (size_t i = 0; i < rows.size(); ++i) (i < turn ? early : late) += rows[i].direct ? 1 : 0;
  // Five standard deviations of a share among 15,680 and 6,720 rows.
  EXPECT_NEAR(early / 15680, 0.25, 0.018);
  EXPECT_NEAR(late / 6720, 0.75, 0.027);
}

TEST(Problems, LinesAreRows) {
  const ProblemSet problems = make_problems(kSeed, kTest);
  const std::string line = problems_jsonl({problems.test.front()});
  const auto row = nlohmann::json::parse(line);
  EXPECT_EQ(row["question"], problems.test.front().question);
  EXPECT_EQ(row["answer"], problems.test.front().worked());
  EXPECT_EQ(line.back(), '\n');
  const auto chat = nlohmann::json::parse(warmup_jsonl({{problems.train.front(), true}}))["messages"];
  ASSERT_EQ(chat.size(), 2U);
  EXPECT_EQ(chat[0]["role"], "user");
  EXPECT_EQ(chat[0]["content"], problems.train.front().question);
  EXPECT_EQ(chat[1]["role"], "assistant");
  EXPECT_EQ(chat[1]["content"], problems.train.front().direct());
}

}  // namespace
}  // namespace lockstep::demo
