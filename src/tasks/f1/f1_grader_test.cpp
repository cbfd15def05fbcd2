// SPDX-License-Identifier: Apache-2.0
#include "tasks/f1/f1_grader.h"

#include <gtest/gtest.h>

namespace lockstep::tasks {
namespace {

TEST(F1, Words) {
  EXPECT_EQ(grade_f1("The red fox!", "a red fox"), 1);
  EXPECT_EQ(grade_f1("red red", "red"), 2 * 0.5 * 1.0 / 1.5);
  EXPECT_EQ(grade_f1("red", "blue"), 0);
  EXPECT_EQ(grade_f1("", "blue"), 0);
  EXPECT_EQ(grade_f1("", ""), 0);
  EXPECT_EQ(grade_f1("theory anagram", "theory anagram"), 1);
  EXPECT_EQ(grade_f1("R.E.D", "red"), 1);
  EXPECT_EQ(grade_f1("\u00C9t\u00E9\u00A0\u0391", "\u00E9t\u00E9 \u03B1"), 1);  // no-break space parts words
}

TEST(F1, VerdictsPayOnlyWhenTheSame) {
  EXPECT_EQ(grade_f1("yes", "yes it is"), 0);
  EXPECT_EQ(grade_f1("yes it is", "yes"), 0);
  EXPECT_EQ(grade_f1("Yes.", "yes"), 1);
  EXPECT_EQ(grade_f1("noanswer", "no"), 0);
}

}  // namespace
}  // namespace lockstep::tasks
