// SPDX-License-Identifier: Apache-2.0
// Each block is one public fault report on answer matching; the rules chosen are in docs/graders.md.
#include "tasks/gsm8k/gsm8k_grader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "same_bits.h"

namespace lockstep::tasks {
namespace {

struct Row {
  const char* response;
  const char* label;
  double reward;
};

void expect_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    EXPECT_EQ(grade_gsm8k(row.response, row.label), row.reward) << row.response << " | " << row.label;
  }
}

TEST(Gsm8k, NumberForms) {
  expect_rows({{"29", "29", 1},
               {"$29.00.", "29", 1},
               {"29.0", "29", 1},
               {"29.", "29", 1},
               {"**29**", "29", 1},
               {"29 dollars", "29", 1},
               {"029", "29", 1},
               {"It costs \\$29.", "29", 1},
               {"290", "29", 0},
               {"2.9", "29", 0},
               {"29.01", "29", 0},
               {"29x", "29", 1},
               {"答案是29。", "29", 1},
               {"x29", "29", 0}});
}

TEST(Gsm8k, LoneComma) {
  expect_rows({{"The total is 72 clips, altogether.", "72", 1},
               {"72, in total, so much", "72", 1},
               {"#### ,", "72", 0},
               {"72 clips\n#### ,", "72", 0},
               {"#### 72,", "72", 1}});
}

TEST(Gsm8k, ThousandsSeparators) {
  expect_rows({{"$70,000", "70000", 1},
               {"70,000.00", "70000", 1},
               {"70 000", "70000", 0},
               {"7,0000", "70000", 0},
               {"1,23,456", "123456", 0},
               {"70{,}000", "70000", 1},
               {"70,\\!000", "70000", 1},
               {"70\\,000", "70000", 1},
               {"1,234,567,890", "1234567890", 1},
               {"1234,567", "1234567", 0},
               {"70000", "70,000", 1},
               {"0.70,000", "70000", 0}});
}

TEST(Gsm8k, NestedBraces) {
  expect_rows({{"\\boxed{\\frac{1}{2}}", ".5", 1},
               {"\\boxed{\\frac{1}{2}}", "\\frac{1}{3}", 0},
               {"\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", 1},
               {"\\boxed{\\frac12}", "0.5", 1},
               {"\\boxed{72", "72", 1},
               {"\\boxed{\\text{72}}", "72", 1},
               {"\\frac{x}{2}", "2", 0},
               {"\\frac{\\frac{1}{2}}{2}", "2", 0},
               {"5\\frac{1}{2}", "5.5", 1},
               {"-\\frac{1}{2}", "-0.5", 1},
               {"\\frac{1}{0}", "0", 0}});
}

TEST(Gsm8k, WhichNumberCounts) {
  expect_rows({{"\\boxed{2} ... no, \\boxed{3}", "3", 1},
               {"\\boxed{2} ... no, \\boxed{3}", "2", 0},
               {"<answer>\\boxed{42}</answer>", "42", 1},
               {"\\boxed{1} ... \\boxed{1}", "1", 1},
               {"\\boxed{1} ... \\boxed{1}", "1,1", 0},
               {"#### 5\n#### 72", "72", 1},
               {"#### 72\nThat took 5 steps.", "72", 1},
               {"####\n\n72", "72", 1},
               {"#### The answer is 72 (6 * 12).", "72", 1},
               {"72\n#### none", "72", 0}});
}

TEST(Gsm8k, SignsAndExponents) {
  expect_rows({{"10", "10", 1},        {"10", "1", 0},     {"1e-1", "0.1", 1}, {"1e-1", "1", 0},
               {"-7", "-7", 1},        {"-7", "7", 0},     {"7", "-7", 0},     {"1e3", "1000", 1},
               {"+5", "5", 1},         {".5", "0.5", 1},   {"-$7", "-7", 1},   {"$-7.00", "-7", 1},
               {"\u22127", "-7", 1},   {"10-3", "3", 1},   {"x-7", "7", 1},    {"= -7", "-7", 1},
               {"(-7)", "-7", 1},      {"- 7", "7", 1},    {"-0", "0", 1},     {"1e3x", "1", 1},
               {"1e99999999", "1", 0}, {"100e-2", "1", 1}, {"1E3", "1000", 1}});
}

TEST(Gsm8k, FractionsAndPercent) {
  expect_rows({{"1/2", "0.5", 1},
               {"1/2", "1/2", 1},
               {"1/2", "2", 0},
               {"2/4", "1/2", 1},
               {"3/4 of it", ".75", 1},
               {"150%", "150", 1},
               {"50%", "0.5", 0},
               {"5 1/2", "5.5", 1},
               {"-5 1/2", "-5.5", 1},
               {"5 7/2", "3.5", 1},
               {"1/0", "0", 0},
               {"1/0", "1/0", 0},
               {"5 1/0", "5", 0},
               {"1/2/2020", "2020", 0},
               {"1/2/2020", "1/2020", 0},
               {"48 / 2", "2", 1},
               {"1/3", "0.3333333333", 0}});
}

TEST(Gsm8k, OnlyTheWholeAnswerPays) {
  std::string list;
  for (int i = 0; i <= 100; ++i) list += std::to_string(i) + " ";
  expect_rows({{"", "72", 0},
               {"<answer></answer>", "72", 0},
               {"7", "72", 0},
               {"172", "72", 0},
               {"72 73", "72", 0},
               {"#### 73 72", "72", 0},
               {"7 2", "72", 0},
               {list.c_str(), "72", 0},
               {"", "", 0},
               {"72", "", 0},
               {"72", "no number", 0},
               {"72", "72 73", 0},
               {"72.0000000000000000000000001", "72", 0},
               {"9007199254740993", "9007199254740992", 0},
               {"72 m^2", "72", 1},
               {"72 cm2", "72", 1},
               {"1.2.3", "3", 0},
               {"\\sqrt2", "2", 1}});
}

TEST(Gsm8k, LabelOfAnAnswer) {
  EXPECT_EQ(label_from_gsm8k_answer("48/2 = <<48/2=24>>24\n#### 72"), "72");
  EXPECT_EQ(label_from_gsm8k_answer("a #### 1 \n####  -7 \n"), "-7");
  EXPECT_EQ(label_from_gsm8k_answer("no mark 72"), "");
}

// All rows of both files: the label is an integer, and the reference answer graded against it pays.
void expect_all_pay(const std::string& name, int rows, int with_commas, int negative) {
  std::ifstream in(lockstep::testing::large_test_data(name));
  ASSERT_TRUE(in) << name;
  int seen = 0;
  int commas = 0;
  int minus = 0;
  for (std::string line; std::getline(in, line); ++seen) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << name << " row " << seen;
    const std::string answer = row["answer"];
    const std::string label = label_from_gsm8k_answer(answer);
    std::string digits;
    for (const char c : label) {
      if (c != ',') digits += c;
    }
    commas += digits != label ? 1 : 0;
    minus += label.starts_with('-') ? 1 : 0;
    EXPECT_EQ(digits.find_first_not_of("0123456789", digits.starts_with('-') ? 1 : 0), std::string::npos)
        << name << " row " << seen << ": " << label;
    EXPECT_EQ(grade_gsm8k(answer, label), 1) << name << " row " << seen << ": " << label;
    EXPECT_EQ(grade_gsm8k("So it is " + digits + ".", label), 1) << label;
    EXPECT_EQ(grade_gsm8k("So it is 1" + digits, label), 0) << label;
  }
  EXPECT_EQ(seen, rows);
  EXPECT_EQ(commas, with_commas);
  EXPECT_EQ(minus, negative);
}

TEST(Gsm8k, EveryReferenceAnswerPays) {
  expect_all_pay("gsm8k/train.jsonl", 7473, 79, 3);
  expect_all_pay("gsm8k/test.jsonl", 1319, 14, 2);
}

}  // namespace
}  // namespace lockstep::tasks
