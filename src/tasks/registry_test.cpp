// SPDX-License-Identifier: Apache-2.0
#include "tasks/registry.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "same_bits.h"

namespace lockstep::tasks {
namespace {

using Json = nlohmann::json;

double grade(const std::string& name, std::string_view response, std::string_view label) {
  auto grader = make_grader(name);
  EXPECT_TRUE(grader.ok());
  return grader.value()->grade(response, label);
}

TEST(Registry, KnownAnswers) {
  std::ifstream in(lockstep::testing::test_data("golden/grade.jsonl"));
  ASSERT_TRUE(in);
  int asked = 0;
  for (std::string line; std::getline(in, line);) {
    const Json row = Json::parse(line);
    const std::string response = row["response"];
    const std::string label = row["label"];
    for (const char* name : {"math", "dapo", "f1"}) {
      if (row[name].is_null()) continue;
      ++asked;
      EXPECT_TRUE(lockstep::testing::bits_of(grade(name, response, label)) ==
                  lockstep::testing::bits_of(row[name].get<double>()))
          << name << ": " << line;
    }
  }
  EXPECT_EQ(asked, 210);
}

TEST(Registry, UnknownNameIsRefusedWithTheNearest) {
  const auto grader = make_grader("gsm8");
  ASSERT_FALSE(grader.ok());
  EXPECT_EQ(grader.status().code(), StatusCode::kInvalid);
  EXPECT_NE(grader.status().message().find("did you mean gsm8k?"), std::string::npos);
  const auto far = make_grader("somethingelse");
  ASSERT_FALSE(far.ok());
  EXPECT_NE(far.status().message().find("boxed_math"), std::string::npos);
  EXPECT_FALSE(make_grader("").ok());
}

TEST(Registry, BoxedGraders) {
  EXPECT_EQ(grade("boxed_gsm8k", "5 \\boxed{72 clips} 6", "72"), 1);
  EXPECT_EQ(grade("boxed_gsm8k", "72", "72"), 0);
  EXPECT_EQ(grade("boxed_gsm8k", "72 \\boxed{72", "72"), 0);
  EXPECT_EQ(grade("boxed_math", "\\boxed{\\frac12}", "0.5"), 1);
  EXPECT_EQ(grade("boxed_math", "0.5", "0.5"), 0);
  EXPECT_EQ(grade("boxed_f1", "so \\boxed{the red fox}", "red fox"), 1);
  EXPECT_EQ(grade("boxed_f1", "red fox", "red fox"), 0);
}

TEST(Registry, PromptSuffix) {
  EXPECT_EQ(default_prompt_suffix("math"),
            "Please reason step by step, and put your final answer within \\boxed{}.");
  EXPECT_EQ(default_prompt_suffix("boxed_gsm8k"), default_prompt_suffix("math"));
  EXPECT_EQ(default_prompt_suffix("gsm8k"), "");
  EXPECT_EQ(default_prompt_suffix("dapo"), "");
  EXPECT_EQ(default_prompt_suffix("nonsense"), "");
}

TEST(Registry, DebugGradeAnswersEveryLine) {
  std::istringstream in(
      "\xEF\xBB\xBF{\"response\": \"#### 72\", \"label\": \"72\"}\n"
      "not json\n"
      "\n"
      "{\"response\": \"72\", \"label\": 72}\r\n"
      "{\"response\": \"0.5\", \"label\": 0.5}\n"
      "{\"response\": \"72\"}\n"
      "{\"response\": 72, \"label\": \"72\"}\n"
      "{\"response\": \"1\", \"label\": 12345678901234567890123}\n"
      "{\"response\": \"\\ud83d\", \"label\": \"1\"}\n"
      "[1]\n"
      "{\"response\": \"71\", \"label\": \"72\"}");
  std::ostringstream out;
  const auto bad = debug_grade("gsm8k", in, out);
  ASSERT_TRUE(bad.ok());
  EXPECT_EQ(bad.value(), 6);
  std::vector<Json> answers;
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  ASSERT_EQ(answers.size(), 10U);
  EXPECT_EQ(answers[0]["reward"], 1);
  EXPECT_EQ(answers[1]["line"], 2);
  EXPECT_EQ(answers[2]["reward"], 1);
  EXPECT_EQ(answers[3]["reward"], 1);
  EXPECT_EQ(answers[4]["line"], 6);
  EXPECT_EQ(answers[4]["error"], "key \"label\" is missing");
  EXPECT_EQ(answers[5]["line"], 7);
  EXPECT_EQ(answers[6]["line"], 8);
  EXPECT_EQ(answers[7]["line"], 9);
  EXPECT_EQ(answers[8]["line"], 10);
  EXPECT_EQ(answers[9]["reward"], 0);
}

TEST(Registry, DebugGradeRefusesAnUnknownName) {
  std::istringstream in("{\"response\": \"72\", \"label\": 72}\n");
  std::ostringstream out;
  EXPECT_FALSE(debug_grade("maths", in, out).ok());
  EXPECT_EQ(out.str(), "");
}

TEST(Registry, DebugGradeReportsAFailedWrite) {
  std::istringstream in("{\"response\": \"72\", \"label\": 72}\n");
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  const auto bad = debug_grade("gsm8k", in, out);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kStopped);
}

std::string repeat(std::string_view piece, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += piece;
  return out;
}

// A megabyte of anything is answered in time linear in it; short absurd expressions in milliseconds. The
// limits are wide (a loaded machine, a sanitizer): a quadratic pass over a megabyte takes minutes.
TEST(Registry, HostileInputsAreAnsweredSoon) {
  constexpr size_t kMegabyte = 1 << 20;
  std::vector<std::string> inputs;
  for (const char* piece : {"9",      "(",      "{",        "\\frac{", "\\frac1",      "1,",      "1/",
                            "-",      " ",      "\\boxed{", "x",       "####",         "answer:", "e1",
                            "\\sqrt", "7 1/2 ", "\n",       "\xF0",    "\xE2\x88\x92", "1.2",     "^",
                            "a ",     "1 ",     "{1}",      "$1",      ",\\!1"}) {
    inputs.push_back(repeat(piece, kMegabyte));
    inputs.push_back("\\boxed{" + repeat(piece, 4'000) + "}");
    inputs.push_back("\\boxed{" + repeat(piece, 1'900) + "}");
  }
  for (const char* text :
       {"9^9^9", "9**9**9**9", "(x+y+1)**99", "((x+1)^9)^9", "((((x+y)^9)^9)^9)^9", "1/0", "0/0",
        "sqrt(-1)^9", "170141183460469231731687303715884105727+1", "-170141183460469231731687303715884105728",
        "1e999999999", "sqrt(170141183460469231731687303715884105727)",
        "(x+1)/(x+2)+(x+3)/(x+4)+(x+5)/(x+6)+(x+7)/(y+8)",
        "sqrt(2+sqrt(3+sqrt(5+sqrt(7+sqrt(11+sqrt(13))))))", "33!*33!", "x^y^x^y",
        "1/(sqrt(2)+sqrt(3)+sqrt(5)+"
        "sqrt(7)+sqrt(11)+sqrt(13)+sqrt(17)+sqrt(19)+sqrt(23)+sqrt(29))"}) {
    inputs.push_back("\\boxed{" + std::string(text) + "}");
  }
  for (const std::string& name : grader_names()) {
    for (const std::string& input : inputs) {
      for (const std::string& label : {std::string("1.5"), input.substr(0, 5'000)}) {
        if (input.size() >= kMegabyte && label != "1.5") continue;
        const std::clock_t begin = std::clock();  // processor time: the machine may be busy
        const double reward = grade(name, input, label);
        const double spent_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        EXPECT_LT(spent_seconds, 30.0) << name << ": " << input.substr(0, 80);
        EXPECT_TRUE(reward >= -1 && reward <= 1);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::tasks
