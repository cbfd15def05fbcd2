// SPDX-License-Identifier: Apache-2.0
// Whole runs by the hash of their ledger: the same on every machine, compiler, optimisation level and
// instruction set. The file is rebuilt by `make golden`; a commit that does so says which bits moved and why.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/file.h"
#include "core/sha256.h"
#include "program.h"
#include "tiny_task.h"

namespace lockstep::testing {
namespace {

constexpr const char* kGoldenFile = LOCKSTEP_GOLDEN "/ledgers.txt";

struct GoldenRun {
  const char* name;
  Arguments more;
};

std::string ledger_hash(const TinyTask& task, const GoldenRun& golden) {
  const std::string run = task.folder + "/" + golden.name;
  const Arguments arguments = std::string(golden.name) == "sft" ? Arguments{"sft",
                                                                            "--hf-checkpoint",
                                                                            task.model,
                                                                            "--prompt-data",
                                                                            task.sft_data,
                                                                            "--input-key",
                                                                            "messages",
                                                                            "--apply-chat-template",
                                                                            "--num-rollout",
                                                                            "4",
                                                                            "--global-batch-size",
                                                                            "4",
                                                                            "--lr",
                                                                            "0.002",
                                                                            "--lr-decay-style",
                                                                            "cosine",
                                                                            "--run-dir",
                                                                            run}
                                                                : task.train(run, golden.more);
  const ProgramResult result = run_program(arguments, run + "_log");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Result<std::string> hash = sha256_file(run + "/ledger.jsonl");
  return hash.ok() ? hash.value() : hash.status().message();
}

TEST(Golden, LedgersOfWholeRuns) {
  const GoldenRun runs[] = {
      {"grpo", {}},
      {"gspo_dr",
       {"--advantage-estimator", "gspo", "--disable-grpo-std-normalization", "--eps-clip-c", "3",
        "--rollout-temperature", "0.7"}},
      {"two_updates",
       {"--global-batch-size", "10", "--rollout-top-p", "0.9", "--rollout-top-k", "50", "--lr-decay-style",
        "linear"}},
      {"sft", {}},
  };
  const TinyTask task =
      make_tiny_task(::testing::TempDir() + "lockstep_golden_" + std::to_string(::getpid()));
  std::string text = "# SHA-256 of run/ledger.jsonl; rebuilt by: make golden\n";
  for (const GoldenRun& run : runs) text += std::string(run.name) + " " + ledger_hash(task, run) + "\n";
  ASSERT_TRUE(remove_all(task.folder).ok());
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file_atomic(kGoldenFile, text).ok());
  }
  EXPECT_EQ(text, read_file(kGoldenFile).value());
}

}  // namespace
}  // namespace lockstep::testing
