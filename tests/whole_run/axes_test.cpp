// SPDX-License-Identifier: Apache-2.0
// The promise on whole runs: every free option, and kill -9 at any moment, leaves ledger, samples and
// checkpoints byte for byte the same. Built once a profile (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/file.h"
#include "core/sha256.h"
#include "device/cpu/isa.h"
#include "program.h"
#include "same_bits.h"
#include "tiny_task.h"

namespace lockstep::testing {
namespace {

constexpr int64_t kSteps = 4;
constexpr const char* kProfile = LOCKSTEP_TEST_PROFILE;

// Everything of a run that may not change: path -> contents or hash.
std::vector<std::pair<std::string, std::string>> fingerprint(const std::string& run) {
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("ledger", read_file(run + "/ledger.jsonl").value());
  const std::vector<std::string> samples = list_directory(run + "/samples").value();
  for (const std::string& name : samples) {
    out.emplace_back("samples/" + name, read_file(run + "/samples/" + name).value());
  }
  const std::string last = run + "/iter_000000" + std::to_string(kSteps - 1);
  const std::vector<std::string> files = list_directory(last).value();
  for (const std::string& name : files) {
    out.emplace_back(name, sha256_file(last + "/" + name).value());
  }
  return out;
}

class Axes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    task_ = new TinyTask(make_tiny_task(::testing::TempDir() + "lockstep_axes_" + std::string(kProfile) +
                                        std::to_string(::getpid())));
    const std::string run = task_->folder + "/base";
    const ProgramResult result = run_program(train(run, {"--threads", "1"}), task_->folder + "/base_log");
    ASSERT_EQ(result.exit_code, 0) << result.err;
    base_ = new std::vector<std::pair<std::string, std::string>>(fingerprint(run));
  }
  static void TearDownTestSuite() {
    EXPECT_TRUE(remove_all(task_->folder).ok());
    delete task_;
    delete base_;
  }

  static Arguments train(const std::string& run, Arguments options = {}) {
    options.insert(options.end(), {"--profile", kProfile});
    return task_->train(run, options);
  }
  static void expect_same(const std::string& name, const Arguments& options) {
    const std::string run = task_->folder + "/" + name;
    const ProgramResult result = run_program(train(run, options), run + "_log");
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    compare(name, run);
    ASSERT_TRUE(remove_all(run).ok());
  }
  static void compare(const std::string& name, const std::string& run) {
    const auto got = fingerprint(run);
    ASSERT_EQ(got.size(), base_->size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].first, (*base_)[i].first) << name;
      EXPECT_TRUE(got[i].second == (*base_)[i].second) << name << ": " << got[i].first << " differs";
    }
  }

  static TinyTask* task_;
  static std::vector<std::pair<std::string, std::string>>* base_;
};
TinyTask* Axes::task_ = nullptr;
std::vector<std::pair<std::string, std::string>>* Axes::base_ = nullptr;

TEST_F(Axes, TheRunIsNotTrivial) {
  // Rewards differ within groups and weights move, else equality would prove nothing.
  const std::string metrics = read_file(task_->folder + "/base/metrics.jsonl").value();
  EXPECT_NE(metrics.find("\"rollout/zero_std/ratio\":0,"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\"train/trained_samples\":20"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\"train/train_rollout_logprob_abs_diff\":0,"), std::string::npos) << metrics;
  const std::string ledger = read_file(task_->folder + "/base/ledger.jsonl").value();
  EXPECT_NE(ledger.find(std::string("\"profile\":\"") + kProfile + "\""), std::string::npos);
}

TEST_F(Axes, Rerun) {
  expect_same("rerun", {"--threads", "1"});
}

TEST_F(Axes, Threads) {
  for (const char* n : {"2", "3", "7"}) expect_same(std::string("threads") + n, {"--threads", n});
}

TEST_F(Axes, RolloutBatchAndAdmission) {
  for (const char* n : {"1", "3", "17", "64"}) {
    expect_same(std::string("batch") + n, {"--max-running-requests", n, "--admission", "shuffle:3"});
  }
  expect_same("shuffle", {"--admission", "shuffle:12345678901"});
}

TEST_F(Axes, PrefixCacheAndChunks) {
  expect_same("nocache", {"--prefix-cache", "off"});
  for (const char* n : {"1", "5", "64", "1000"}) {
    expect_same(std::string("chunk") + n, {"--chunked-prefill-size", n});
    expect_same(std::string("chunk_nocache") + n, {"--chunked-prefill-size", n, "--prefix-cache", "off"});
  }
}

TEST_F(Axes, PreemptionUnderPressure) {
  for (const char* n : {"192", "320", "512"}) expect_same(std::string("pool") + n, {"--max-total-tokens", n});
}

TEST_F(Axes, StepsWithoutTheScheduler) {
  for (const char* n : {"1", "2", "5", "64"}) {
    expect_same(std::string("steps") + n, {"--decode-steps", n});
    expect_same(std::string("steps_pool") + n, {"--decode-steps", n, "--max-total-tokens", "320"});
    expect_same(std::string("steps_few") + n, {"--decode-steps", n, "--max-running-requests", "3"});
  }
}

// Options that do nothing on a CPU: skipped there, a failure where a GPU is required (make test-gpu).
TEST_F(Axes, GraphsAndMultiprocessors) {
  const char* device = std::getenv("LOCKSTEP_TEST_DEVICE");
  if (device == nullptr || std::string(device) != "cuda") {
    if (std::getenv("LOCKSTEP_GPU_REQUIRED") != nullptr)
      FAIL() << "LOCKSTEP_GPU_REQUIRED, but LOCKSTEP_TEST_DEVICE is not cuda";
    GTEST_SKIP() << "LOCKSTEP_TEST_DEVICE is not cuda: graphs and multiprocessors are a GPU's";
  }
  for (const char* n : {"1", "8"}) {
    expect_same(std::string("launches") + n, {"--cuda-graphs", "off", "--decode-steps", n});
    expect_same(std::string("graphs") + n, {"--cuda-graphs", "on", "--decode-steps", n});
  }
  for (const char* n : {"1", "5", "100"}) expect_same(std::string("sms") + n, {"--gpu-sms", n});
}

TEST_F(Axes, MicroBatches) {
  for (const char* n : {"1", "100", "333", "100000"})
    expect_same(std::string("micro") + n, {"--max-tokens-per-gpu", n});
  expect_same("recompute", {"--recompute-activations", "--max-tokens-per-gpu", "200"});
}

TEST_F(Axes, InstructionSets) {
  for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (cpu::isa_available(isa)) {
      expect_same(std::string("isa_") + cpu::isa_name(isa), {"--isa", cpu::isa_name(isa)});
    } else {
      std::printf("[   NOTE   ] %s is not on this machine; not run\n", cpu::isa_name(isa));
    }
  }
}

TEST_F(Axes, EverythingAtOnce) {
  expect_same("all", {"--threads", "3", "--max-running-requests", "7", "--admission", "shuffle:9",
                      "--prefix-cache", "off", "--chunked-prefill-size", "3", "--max-tokens-per-gpu", "77",
                      "--max-total-tokens", "448", "--decode-steps", "4", "--isa", "scalar"});
}

TEST_F(Axes, KilledAtRandomMomentsAndResumed) {
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  const int kills_wanted = wanted != nullptr ? std::atoi(wanted) : 12;
  TestRandom random(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  const std::string run = task_->folder + "/killed";
  int kills = 0;
  for (int round = 0; kills < kills_wanted && round < 10 * kills_wanted + 10; ++round) {
    if (round % 6 == 0) {
      ASSERT_TRUE(remove_all(run).ok());
    }
    const pid_t pid = start_program(train(run), run + "_log");
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(600'000)));
    if (::kill(pid, SIGKILL) == 0) ++kills;
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0) << read_file(run + "_log.err").value();
      compare("killed and finished", run);
      ASSERT_TRUE(remove_all(run).ok());
    }
  }
  const ProgramResult result = run_program(train(run), run + "_log");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  compare("killed", run);
  const std::vector<std::string> names = list_directory(run).value();
  for (const std::string& name : names) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

TEST_F(Axes, ResumeAfterEveryStep) {
  const std::string run = task_->folder + "/stepwise";
  for (int64_t n = 1; n <= kSteps; ++n) {
    Arguments options = train(run);
    for (size_t i = 0; i < options.size(); ++i) {
      if (options[i] == "--num-rollout") options[i + 1] = std::to_string(n);
    }
    const ProgramResult result = run_program(options, run + "_log");
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  compare("stepwise", run);
}

}  // namespace
}  // namespace lockstep::testing
