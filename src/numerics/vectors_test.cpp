// SPDX-License-Identifier: Apache-2.0
// Every line of tests/data/numerics/vectors.txt. With LOCKSTEP_WRITE_GOLDEN=1 in the environment the file is
// written anew instead (make golden: a new numerics version).
#include "numerics/vectors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "core/file.h"
#include "same_bits.h"

namespace lockstep::numerics {
namespace {

std::string path() {
  return lockstep::testing::test_data("numerics/vectors.txt");
}

TEST(Vectors, EveryLineOfTheFile) {
  if (const char* write = std::getenv("LOCKSTEP_WRITE_GOLDEN"); write != nullptr && write[0] == '1') {
    const Status status = write_file_atomic(path(), vectors_text());
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const auto file = read_file(path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::istringstream lines(file.value());
  size_t answers = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find(" = ");
    ASSERT_NE(equals, std::string::npos) << line;
    const auto answer = evaluate_vector(line.substr(0, equals));
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer.value(), line.substr(equals + 3)) << line.substr(0, equals);
    ++answers;
  }
  EXPECT_EQ(answers, vector_questions().size()) << "lines are missing";
  EXPECT_EQ(file.value(), vectors_text());
}

TEST(Vectors, BadQuestionsAreRefused) {
  EXPECT_FALSE(evaluate_vector("").ok());
  EXPECT_FALSE(evaluate_vector("tanh_f32 0").ok());
  EXPECT_FALSE(evaluate_vector("exp_f32").ok());
  EXPECT_FALSE(evaluate_vector("exp_f32 0 0").ok());
  EXPECT_FALSE(evaluate_vector("exp_f32 xyz").ok());
  EXPECT_FALSE(evaluate_vector("exp_f64 11112222333344445").ok());
}

}  // namespace
}  // namespace lockstep::numerics
