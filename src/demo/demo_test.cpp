// SPDX-License-Identifier: Apache-2.0
// Processes, folder rules and failures of the demo. The whole story is tests/demo_test.py.
#include "demo/demo.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "core/file.h"
#include "demo/process.h"

namespace lockstep::demo {
namespace {

class DemoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "demo_test_" + std::to_string(getpid());
    ASSERT_TRUE(remove_all(folder_).ok());
    ASSERT_TRUE(make_directories(folder_).ok());
  }
  void TearDown() override { EXPECT_TRUE(remove_all(folder_).ok()); }
  std::string path(const std::string& name) const { return join_path(folder_, name); }
  Ending shell(const std::string& script) const {
    auto process = Process::start("/bin/sh", {"-c", script}, path("log"));
    EXPECT_TRUE(process.ok());
    return process.value().wait();
  }
  // A demo whose parts are all `program`.
  Status demo(const std::string& program, const std::string& out) {
    DemoConfig config;
    config.out = out;
    config.program = program;
    config.print = [this](const std::string& line) { printed_ += line + "\n"; };
    return run_demo(config);
  }
  std::string folder_, printed_;
};

TEST_F(DemoTest, ProcessReportsExitCodeSignalAndOutput) {
  EXPECT_EQ(shell("echo out; echo err >&2; exit 3").exit_code, 3);
  EXPECT_EQ(read_file(path("log")).value(), "out\nerr\n");
  EXPECT_TRUE(shell("exit 0").ok());
  const Ending killed = shell("kill -9 $$");
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_FALSE(killed.ok());
  EXPECT_EQ(killed.text(), "signal 9");
  EXPECT_FALSE(Process::start("/nonexistent/program", {}, path("log")).ok());
  EXPECT_FALSE(Process::start("/bin/sh", {}, path("no/such/folder/log")).ok());
}

TEST_F(DemoTest, KillWhenDueUnlessItEndedBefore) {
  auto sleeper = Process::start("/bin/sh", {"-c", "touch " + path("up") + "; sleep 100"}, path("log"));
  ASSERT_TRUE(sleeper.ok());
  EXPECT_EQ(sleeper.value().kill_when([&] { return path_exists(path("up")); }).signal, SIGKILL);
  auto quick = Process::start("/bin/sh", {"-c", "exit 7"}, path("log"));
  ASSERT_TRUE(quick.ok());
  EXPECT_EQ(quick.value().kill_when([] { return false; }).exit_code, 7);
}

TEST_F(DemoTest, LastLines) {
  ASSERT_TRUE(write_file_atomic(path("text"), "a\nb\nc\n").ok());
  EXPECT_EQ(last_lines(path("text"), 2), "b\nc\n");
  EXPECT_EQ(last_lines(path("text"), 9), "a\nb\nc\n");
  ASSERT_TRUE(write_file_atomic(path("text"), "a\nb").ok());
  EXPECT_EQ(last_lines(path("text"), 1), "b");
  EXPECT_EQ(last_lines(path("missing"), 1), "");
}

TEST_F(DemoTest, AFolderInUseIsRefusedAndLeftAlone) {
  ASSERT_TRUE(write_file_atomic(path("mine"), "mine").ok());
  const Status used = demo("/bin/true", folder_);
  EXPECT_EQ(used.code(), StatusCode::kInvalid);
  EXPECT_NE(used.message().find("--out"), std::string::npos) << used.message();
  EXPECT_EQ(list_directory(folder_).value(), std::vector<std::string>{"mine"});
  EXPECT_EQ(demo("/bin/true", path("mine")).code(), StatusCode::kInvalid);
  EXPECT_EQ(demo("/bin/true", path("mine/below")).code(), StatusCode::kInvalid);
  EXPECT_EQ(read_file(path("mine")).value(), "mine");
}

TEST_F(DemoTest, AFailedPartIsTheAnswerNo) {
  const Status failed = demo("/bin/false", path("out"));
  EXPECT_EQ(failed.code(), StatusCode::kDifferent);
  EXPECT_NE(failed.message().find("init"), std::string::npos) << failed.message();
  EXPECT_NE(failed.message().find(path("out/logs/init.log")), std::string::npos) << failed.message();
  EXPECT_EQ(printed_.find("runs identical"), std::string::npos);
  // Everything exits 0 and nothing is there: found out at the first result.
  const Status empty = demo("/bin/true", path("empty"));
  EXPECT_EQ(empty.code(), StatusCode::kDifferent);
  EXPECT_NE(empty.message().find("before.jsonl"), std::string::npos) << empty.message();
  EXPECT_EQ(demo("/nonexistent/program", path("none")).code(), StatusCode::kDifferent);
}

TEST(DemoRecipe, LinesForAShell) {
  EXPECT_EQ(shell_line("lockstep", {"verify", "a b", "it's", ""}), "lockstep verify 'a b' 'it'\\''s' ''");
  Recipe recipe;
  const std::string toml = sft_toml(recipe, Layout("odd \"name\"\\"));
  EXPECT_NE(toml.find("hf-checkpoint = \"odd \\\"name\\\"\\\\/model\"\n"), std::string::npos) << toml;
}

}  // namespace
}  // namespace lockstep::demo
