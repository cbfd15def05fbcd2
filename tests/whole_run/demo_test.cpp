// SPDX-License-Identifier: Apache-2.0
// The demo, whole: exit code 0 and, on every machine, the last line of tests/golden/demo.txt and of
// README.md.
#include <gtest/gtest.h>

#include "core/file.h"
#include "program.h"

namespace lockstep::testing {
namespace {

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

TEST(Demo, EndsWithTheSameLineEverywhere) {
  const std::string folder = ::testing::TempDir() + "lockstep_demo_" + std::to_string(::getpid());
  const std::string golden = last_line(read_file(LOCKSTEP_GOLDEN "/demo.txt").value());
  const ProgramResult result = run_program({"demo", "--out", folder}, folder + "_log");
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(last_line(result.out), golden);
  EXPECT_NE(read_file(LOCKSTEP_README).value().find(golden), std::string::npos)
      << "README.md names another line";
  // A folder in use is never overwritten.
  const ProgramResult again = run_program({"demo", "--out", folder}, folder + "_log");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find(folder), std::string::npos) << again.err;
  ASSERT_TRUE(remove_all(folder).ok());
}

}  // namespace
}  // namespace lockstep::testing
