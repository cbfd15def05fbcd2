// SPDX-License-Identifier: Apache-2.0
#include "tasks/math/math_grader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tasks/math/expression.h"
#include "tasks/math/latex.h"
#include "tasks/math/normal_form.h"

namespace lockstep::tasks {
namespace {

struct Pair {
  const char* left;
  const char* right;
};

void expect_agree(const std::vector<Pair>& pairs, bool agree) {
  for (const Pair& pair : pairs) {
    EXPECT_EQ(math_answers_agree(pair.left, pair.right), agree) << pair.left << " | " << pair.right;
    EXPECT_EQ(math_answers_agree(pair.right, pair.left), agree) << pair.right << " | " << pair.left;
  }
}

TEST(Math, TheLastBoxCounts) {
  EXPECT_EQ(grade_math("\\boxed{71} no wait \\boxed{72}", "72"), 1);
  EXPECT_EQ(grade_math("\\boxed{71} no wait \\boxed{72", "71"), 0);  // cut off: 71 was withdrawn
  EXPECT_EQ(grade_math("\\boxed{72", "72"), 0);
  EXPECT_EQ(grade_math("\\boxed {72}", "72"), 0);
  EXPECT_EQ(grade_math("\\boxed", "72"), 0);
  EXPECT_EQ(grade_math("72", "72"), 0);
  EXPECT_EQ(grade_math("\\boxed{\\boxed{72}}", "72"), 1);
  EXPECT_EQ(grade_math("\\boxed{\\frac{1}{2}}", "\\boxed{\\frac{1}{2}}"), 1);
  EXPECT_EQ(grade_math("\\boxed{72}", "\\boxed{72"), 0);
}

TEST(Math, EmptyNeverPays) {
  for (const char* label : {"", " ", "\\boxed{}", "$", "%", "\\text{ x}", "{}", "\\left", "day"}) {
    for (const char* response : {"\\boxed{}", "\\boxed{ }", "\\boxed{$}", "\\boxed{\\%}", "\\boxed{{}}"}) {
      EXPECT_EQ(grade_math(response, label), 0) << response << " | " << label;
    }
  }
}

TEST(Math, FormsThatAgree) {
  expect_agree({{"\\dfrac12", "\\frac{1}{2}"},
                {"\\sqrt3", "\\sqrt{3}"},
                {"k = 5", "5"},
                {".5", "\\frac12"},
                {"\\left(1, 2\\right)", "(1,2)"},
                {"90^\\circ", "90"},
                {"12 inches", "12"},
                {"3 hours", "3"},
                {"5\\ \\mathrm{cm}^2", "5"},
                {"5\\text{cm}^{2}", "5"},
                {"5 cm^{2}", "5"},
                {"(n+3)^2.", "(n+3)^2"},
                {"5 million", "5*10^6"},
                {"3\\frac{1}{2}", "7/2"},
                {"-3\\frac{1}{2}", "-3.5"},
                {"3{\\frac{1}{2}}", "3.5"},
                {"(1,234, 5)", "(1234,5)"},
                {"1,234,567,890", "1234567890"},
                {"\\text{East}", "east"},
                {"(-\\infty, \\frac12)", "(-\\infty, 0.5)"},
                {"(-\\infty,1)\\cup(2,\\infty)", "(-∞,1)∪(2,∞)"},
                {"\\displaystyle 72", "72"},
                {"71.99999999", "72"},
                {"2e2", "200"}},
               true);
}

TEST(Math, FormsThatDiffer) {
  expect_agree({{"\\frac{2}{4}", "\\frac{1}{2}"},
                {"2/4.", "1/2"},
                {"10^6", "1000000"},
                {"\\frac{144}{2}", "72"},
                {"71.9999", "72"},
                {"[1,2]", "(1,2)"},
                {"(1,2,3)", "(1,2)"},
                {"(1,2]", "(1,2)"},
                {"50%", "0.5"},
                {"7,0000", "70000"},
                {"12_8", "128"},  // a numeral of base 8
                {"x + \\frac12", "\\frac{x+1}{2}"},
                {"\\frac{1}{2x}", "\\frac{x}{2}"},
                {"\\sqrt[3]{2}", "\\sqrt{2}"},
                {"x^{ab}", "x^ab"},
                {"12345678901234567890", "12345678901234567891"},
                {"72 clips", "72"},
                {"\\frac{1}{0}", "\\frac{2}{0}"},
                {"east", "west"},
                {"x<5", "5>x"},
                {"2\\frac13\\frac15", "2/15"}},
               false);
}

TEST(Math, SymbolicallyEqual) {
  const std::vector<Pair> equal = {
      {"x+1", "1+x"},
      {"(x+1)^2", "x^2+2x+1"},
      {"x(x+1)", "x^2+x"},
      {"(x^2-1)/(x-1)", "x+1"},
      {"1/x+1/y", "(x+y)/(xy)"},
      {"(x+y)^9-(x+y)^9", "0"},
      {"sqrt(12)", "2sqrt(3)"},
      {"1/sqrt(2)", "sqrt(2)/2"},
      {"sqrt(2)sqrt(3)", "sqrt(6)"},
      {"xsqrt(2)", "sqrt(2)x"},
      {"1/(sqrt(3)-sqrt(2))", "sqrt(3)+sqrt(2)"},
      {"sqrt(3+2sqrt(2))", "1+sqrt(2)"},
      {"sqrt(3-2sqrt(2))", "sqrt(2)-1"},
      {"sqrt(5+2sqrt(6))", "sqrt(2)+sqrt(3)"},
      {"sqrt(2+sqrt(2))*sqrt(2+sqrt(2))", "2+sqrt(2)"},
      {"sqrt(1/2)", "sqrt(2)/2"},
      {"sqrt(170141183460469231226902724437977889249)", "13043817825332782193"},  // a square above 2^126
      {"sqrt(8x)", "2sqrt(2)sqrt(x)"},
      {"sqrt(x)^2", "x"},
      {"1/sqrt(x)", "sqrt(x)/x"},
      {"x^0.5", "sqrt(x)"},
      {"sqrt(1/x)*sqrt(1/x)", "1/x"},
      {"sqrt(-4)", "2sqrt(-1)"},
      {"pi/2+pi/2", "pi"},
      {"2pi", "pi*2"},
      {"0.5x", "x/2"},
      {"0.1+0.2", "0.3"},
      {"1/2x", "x/2"},
      {"-x^2", "-(x^2)"},
      {"x^-1", "1/x"},
      {"2^x*3", "3*2^x"},
      {"e^-x", "1/e^x"},
      {"x_1+x_2", "x_2+x_1"},
      {"ln(8)", "3ln(2)"},
      {"ln(1/2)", "-ln(2)"},
      {"5!x", "120x"},
      {"2**3", "8"},
      {"θ+1", "1+θ"},
  };
  for (const Pair& pair : equal) {
    EXPECT_TRUE(symbolically_equal(pair.left, pair.right)) << pair.left << " | " << pair.right;
  }
}

TEST(Math, NotSymbolicallyEqual) {
  const std::vector<Pair> different = {
      {"x+1", "x+2"},
      {"sqrt(2)", "1.4142135623730951"},  // not by nearness
      {"sqrt(2)+sqrt(3)", "3.1462643699419723423"},
      {"sqrt(x^2)", "x"},
      {"sqrt(x)*sqrt(y)", "sqrt(xy)"},
      {"-x^2", "(-x)^2"},
      {"sqrt(-1)", "1"},
      {"1/3", "0.3333333333333333"},
      {"x/0", "x/0"},
      {"1/(x-x)", "1/(x-x)"},
      {"0^0", "1"},
      {"0^0", "0"},
      {"0^-1", "0"},
      {"x+y+z", "z+y+x"},  // three letters
      {"x^10", "x^10+0"},  // a power of two digits
      {"x^(2)", "x^2"},    // and one in parentheses are refused
      {"9^9^9", "9^9^9"},
      {"9**9**9", "9**9**9"},
      {"oo", "o^2"},
      {"nan", "nan"},
      {"x=1", "x=1"},
      {"", ""},
      {"()", "()"},
      {"(", "("},
      {"1..2", "1..2"},
      {"99999999999999999999999999999999999999999999", "99999999999999999999999999999999999999999999"},
      {"sqrt", "sqrt"},
      {"34!", "34!"},
  };
  for (const Pair& pair : different) {
    EXPECT_FALSE(symbolically_equal(pair.left, pair.right)) << pair.left << " | " << pair.right;
  }
}

TEST(Math, LatexToPlain) {
  const std::vector<Pair> rows = {{"\\frac{1}{2}", "1/2"},
                                  {"\\frac{x+1}{2x}", "(x+1)/(2x)"},
                                  {"\\frac{\\sqrt{3}}{2}", "sqrt(3)/2"},
                                  {"\\frac12", "1/2"},
                                  {"3\\frac{1}{2}", "3 1/2"},
                                  {"3\\frac{1}{x}", "3*1/x"},
                                  {"\\frac{1}{2}3", "1/2*3"},
                                  {"\\left(\\frac12\\right)^2", "(1/2)^2"},
                                  {"\\frac12^2", "(1/2)^2"},
                                  {"2 \\cdot \\pi", "2 *pi"},
                                  {"x^{12}", "x^12"},
                                  {"x^{ab}", "x^(ab)"},
                                  {"\\unknown{3}", "\\unknown3"},
                                  {"\\sqrt[3]{2}", "root[3](2)"},
                                  {"\\{1\\}", "1"}};
  for (const Pair& row : rows) EXPECT_EQ(latex_to_plain(row.left), row.right) << row.left;
  EXPECT_EQ(latex_to_plain(std::string(100, '{')), std::nullopt);
}

TEST(Math, LatexForm) {
  const std::vector<Pair> rows = {{"\\frac1{72}", "\\frac{1}{72}"},
                                  {"1/2", "\\frac{1}{2}"},
                                  {"01/2", "01/2"},
                                  {"0.5", "\\frac{1}{2}"},
                                  {"x = .5", "\\frac{1}{2}"},
                                  {"abc=5", "abc=5"},
                                  {"\\frac", "\\frac"},
                                  {"5\\text{ cm}", "5"},
                                  {"\\sqrt\u03C0", "\\sqrt{\u03C0}"}};
  for (const Pair& row : rows) EXPECT_EQ(latex_form(row.left), row.right) << row.left;
}

}  // namespace
}  // namespace lockstep::tasks
