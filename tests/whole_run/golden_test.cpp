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
  bool untied = false;  // a model with a head of its own, another head size and group
};

std::string untied_config_json() {
  std::string text = demo::model_config_json();
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    LOCKSTEP_CHECK(at != std::string::npos, from);
    text.replace(at, from.size(), to);
  };
  replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  replace("\"num_attention_heads\": 4", "\"num_attention_heads\": 6");
  replace("\"intermediate_size\": 256", "\"intermediate_size\": 152");
  return text;  // head size 16, three query heads a key/value head
}

std::string ledger_hash(const TinyTask& task, const GoldenRun& golden) {
  const std::string run = task.folder + "/" + golden.name;
  Arguments arguments = std::string(golden.name).rfind("sft", 0) == 0 ? Arguments{"sft",
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
  if (std::string(golden.name).rfind("sft", 0) == 0)
    arguments.insert(arguments.end(), golden.more.begin(), golden.more.end());
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
      {"bf16_grpo", {"--profile", "bf16"}},
      {"bf16_two_updates",
       {"--bf16", "--global-batch-size", "10", "--rollout-top-p", "0.9", "--advantage-estimator", "gspo"}},
      {"untied", {"--rollout-temperature", "0.7"}, true},
      {"bf16_untied", {"--bf16", "--rollout-temperature", "0.7"}, true},
      {"sft_bf16", {"--bf16"}},
  };
  const TinyTask task =
      make_tiny_task(::testing::TempDir() + "lockstep_golden_" + std::to_string(::getpid()));
  const TinyTask untied = make_tiny_task(
      ::testing::TempDir() + "lockstep_golden_untied_" + std::to_string(::getpid()), untied_config_json());
  std::string text = "# SHA-256 of run/ledger.jsonl; rebuilt by: make golden\n";
  for (const GoldenRun& run : runs)
    text += std::string(run.name) + " " + ledger_hash(run.untied ? untied : task, run) + "\n";
  ASSERT_TRUE(remove_all(task.folder).ok());
  ASSERT_TRUE(remove_all(untied.folder).ok());
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file_atomic(kGoldenFile, text).ok());
  }
  EXPECT_EQ(text, read_file(kGoldenFile).value());
}

}  // namespace
}  // namespace lockstep::testing
