// SPDX-License-Identifier: Apache-2.0
// The demo, whole: exit code 0 and, on every machine, the last line of tests/golden/demo.txt and of
// README.md.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/file.h"
#include "core/sha256.h"
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
  // What the line says, seen from outside: the same bytes, and one of the two runs was started twice.
  for (const char* name :
       {"/ledger.jsonl", "/iter_0000059/SHA256SUMS", "/iter_0000059/optimizer.safetensors"}) {
    EXPECT_EQ(sha256_file(folder + "/run-a" + name).value(), sha256_file(folder + "/run-b" + name).value())
        << name;
  }
  EXPECT_NE(golden.find(sha256_file(folder + "/run-b/iter_0000059/SHA256SUMS").value()), std::string::npos);
  for (const auto& [run, starts] : {std::pair("/run-a", 1), std::pair("/run-b", 2)}) {
    const std::string text = read_file(folder + run + "/environment.jsonl").value();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), starts) << text;
  }
  // A folder in use is never overwritten.
  const ProgramResult again = run_program({"demo", "--out", folder}, folder + "_log");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find(folder), std::string::npos) << again.err;
  for (const char* end : {"", "_log.out", "_log.err"}) ASSERT_TRUE(remove_all(folder + end).ok());
}

}  // namespace
}  // namespace lockstep::testing
