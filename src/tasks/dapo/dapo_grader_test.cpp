// SPDX-License-Identifier: Apache-2.0
#include "tasks/dapo/dapo_grader.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::tasks {
namespace {

TEST(Dapo, TheLastAnswerLineCounts) {
  EXPECT_EQ(grade_dapo("Answer: 41\nAnswer: 42", "42"), 1);
  EXPECT_EQ(grade_dapo("Answer: 42\nAnswer: 41", "42"), -1);
  EXPECT_EQ(grade_dapo("ANSWER :\n\n 42\nBye 7", "42"), 1);
  EXPECT_EQ(grade_dapo("Answer: 42\nAnswer: ", "42"), -1);
  EXPECT_EQ(grade_dapo("Answer: 42\nAnswer:\n", "42"), 1);  // nothing was given after the second
  EXPECT_EQ(grade_dapo("The answer is 42", "42"), -1);
  EXPECT_EQ(grade_dapo("", "42"), -1);
}

TEST(Dapo, OnlyTheTailIsRead) {
  EXPECT_EQ(grade_dapo("Answer: 42\n" + std::string(289, '.'), "42"), 1);
  EXPECT_EQ(grade_dapo("Answer: 42\n" + std::string(290, '.'), "42"), -1);
  std::string wide;  // characters, not bytes
  for (int i = 0; i < 289; ++i) wide += "\u00E9";
  EXPECT_EQ(grade_dapo("Answer: 42\n" + wide, "42"), 1);
  EXPECT_EQ(grade_dapo("Answer: 42\n" + wide + "\u00E9", "42"), -1);
}

TEST(Dapo, NormalForms) {
  for (const char* answer : {"$42$", "\\boxed{42}", "$x = 42$", "42 dollars", "\\text{42}", "42^\\circ",
                             "\\$42", "the total is = 42", "42 square feet", "42<|im_end|>"}) {
    EXPECT_EQ(grade_dapo(std::string("Answer: ") + answer, "42"), 1) << answer;
  }
  EXPECT_EQ(grade_dapo("Answer: 1,234", "1234"), 1);
  EXPECT_EQ(grade_dapo("Answer: 1234", "1,234"), 1);
  EXPECT_EQ(grade_dapo("Answer: 42", "42.0"), 1);
  EXPECT_EQ(grade_dapo("Answer: 42.0", "42"), -1);
  EXPECT_EQ(grade_dapo("Answer: 0", "0.5"), -1);  // a label is never cut to an integer
  EXPECT_EQ(grade_dapo("Answer: 42", "41.99999999"), -1);
  EXPECT_EQ(grade_dapo("Answer: \\frac12", "\\frac{1}{2}"), 1);
  EXPECT_EQ(grade_dapo("Answer: ", ""), -1);
  EXPECT_EQ(grade_dapo("Answer: $", "$"), -1);
}

}  // namespace
}  // namespace lockstep::tasks
