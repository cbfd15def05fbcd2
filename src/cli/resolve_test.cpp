// SPDX-License-Identifier: Apache-2.0
#include "cli/resolve.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "cli/command_line.h"
#include "cli/config_file.h"
#include "core/file.h"

namespace lockstep::cli {
namespace {

Values values_of(const std::string& more, CommandSet command = kTrain) {
  Values values(command);
  std::vector<std::string> notes;
  const Status status = read_config_text(
      "hf-checkpoint = \"m\"\nprompt-data = \"d\"\nrm-type = \"math\"\n"
      "num-rollout = 3\nrun-dir = \"r\"\n" +
          more,
      "run.toml", &values, &notes);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

std::string error_of(const std::string& more) {
  std::vector<std::string> warnings;
  const auto config = resolve_train(values_of(more), &warnings);
  return config.ok() ? "" : config.status().message();
}

std::vector<std::string> warnings_of(const std::string& more) {
  std::vector<std::string> warnings;
  const auto config = resolve_train(values_of(more), &warnings);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return warnings;
}

loop::TrainConfig train_of(const std::string& more) {
  std::vector<std::string> warnings;
  auto config = resolve_train(values_of(more), &warnings);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::move(config).value();
}

TEST(Resolve, ChecksThatConcernTwoOptions) {
  EXPECT_EQ(
      error_of("global-batch-size = 100\n"),
      "run.toml:6: global-batch-size: 100 does not divide the 256 samples of a step (--rollout-batch-size "
      "times --n-samples-per-prompt)");
  EXPECT_NE(error_of("global-batch-size = 512\n"), "");
  EXPECT_NE(error_of("num-steps-per-rollout = 3\n"), "");
  EXPECT_NE(error_of("num-steps-per-rollout = 2\nglobal-batch-size = 256\n"), "");
  EXPECT_EQ(error_of("num-steps-per-rollout = 2\nglobal-batch-size = 128\n"), "");
  EXPECT_EQ(error_of("kl-loss-coef = 0.1\n"),
            "run.toml:6: kl-loss-coef: 0.1 has no effect without --use-kl-loss; add it or leave this out");
  EXPECT_EQ(error_of("kl-loss-coef = 0.0\n"), "");
  EXPECT_EQ(error_of("eval-interval = 5\n"),
            "run.toml:6: eval-interval: 5 needs --eval-prompt-data NAME FILE");
  EXPECT_EQ(error_of("eval-interval = 5\neval-prompt-data = [\"a\", \"x\", \"a\", \"y\"]\n"),
            "run.toml:7: eval-prompt-data: two data sets are named a");
  EXPECT_NE(error_of("eval-interval = 5\neval-prompt-data = [\"../a\", \"x\"]\n"), "");
  EXPECT_NE(error_of("min-lr = 1e-3\n"), "");
  EXPECT_NE(error_of("lr-decay-style = \"cosine\"\nlr-warmup-iters = 3\n"), "");
  EXPECT_EQ(error_of("lr-decay-style = \"cosine\"\nlr-warmup-iters = 2\n"), "");
  EXPECT_EQ(error_of("lr-warmup-iters = 30\n"), "") << "a constant rate decays nowhere";
  EXPECT_EQ(error_of("admission = \"lifo\"\n"),
            "run.toml:6: admission: 'lifo' is neither fifo nor shuffle:SEED with a whole SEED of at least 0");
  EXPECT_NE(error_of("admission = \"shuffle:-1\"\n"), "");
  EXPECT_NE(error_of("admission = \"shuffle:\"\n"), "");
}

TEST(Resolve, SafeControlTokensNeedATemplate) {
  EXPECT_NE(error_of("control-tokens = \"safe\"\n").find("--apply-chat-template"), std::string::npos);
  EXPECT_EQ(error_of("control-tokens = \"safe\"\napply-chat-template = true\n"), "");
}

TEST(Resolve, DefaultsThatFollowOtherOptions) {
  const loop::TrainConfig plain = train_of("");
  EXPECT_EQ(plain.global_batch_size, 256);
  EXPECT_EQ(plain.update.loss.eps_clip_high, 0.2);
  EXPECT_EQ(train_of("eps-clip = 0.3\n").update.loss.eps_clip_high, 0.3);
  EXPECT_EQ(train_of("eps-clip = 0.3\neps-clip-high = 0.4\n").update.loss.eps_clip_high, 0.4);
  EXPECT_EQ(train_of("num-steps-per-rollout = 4\n").global_batch_size, 64);
  const rollout::SamplingConfig eval =
      train_of(
          "rollout-temperature = 0.5\nrollout-top-p = 0.25\nrollout-max-response-len = 9\neval-top-k = 1\n"
          "eval-interval = 1\neval-prompt-data = [\"a\", \"x\"]\n")
          .eval.sampling;
  EXPECT_EQ(eval.temperature, 0.5);
  EXPECT_EQ(eval.top_p, 0.25);
  EXPECT_EQ(eval.max_new_tokens, 9);
  EXPECT_EQ(eval.top_k, 1);
  const loop::TrainConfig raw = train_of("disable-rewards-normalization = true\n");
  EXPECT_FALSE(raw.update.loss.subtract_mean);
  EXPECT_FALSE(raw.update.loss.divide_by_std);
}

// Sampling values hidden in a model folder shape nothing: those of the options count, and they have these
// defaults whatever the checkpoint holds.
TEST(Resolve, SamplingIsWhatTheOptionsSay) {
  const rollout::SamplingConfig sampling = train_of("rollout-temperature = 1.0\n").sampling;
  EXPECT_EQ(sampling.temperature, 1.0);
  EXPECT_EQ(sampling.top_p, 1.0);
  EXPECT_EQ(sampling.top_k, -1);
  EXPECT_TRUE(sampling.stop.empty());
}

TEST(Resolve, WarnsOfRunsThatLearnNothing) {
  EXPECT_EQ(warnings_of("").size(), 0U);
  EXPECT_EQ(warnings_of("n-samples-per-prompt = 1\n").size(), 1U);
  EXPECT_EQ(warnings_of("n-samples-per-prompt = 1\ndisable-rewards-normalization = true\n").size(), 0U);
  EXPECT_EQ(warnings_of("rollout-temperature = 0\n").size(), 1U);
  EXPECT_EQ(warnings_of("adam-eps = 1e-11\n").size(), 1U);
  EXPECT_EQ(warnings_of("use-kl-loss = true\n").size(), 1U);
  EXPECT_EQ(warnings_of("use-kl-loss = true\nkl-loss-coef = 0.1\n").size(), 0U);
  EXPECT_EQ(warnings_of("eval-prompt-data = [\"a\", \"x\"]\n").size(), 1U);
}

TEST(Resolve, OtherCommands) {
  Values generate(kGenerate);
  EXPECT_FALSE(resolve_generate(generate).ok()) << "neither prompt nor file";
  EXPECT_EQ(resolve_generate(values_of("", kGenerate)).value().n_samples_per_prompt, 1);
  Value prompt;
  prompt.words = {"hello"};
  prompt.where = "--prompt";
  Values both = values_of("", kGenerate);  // with prompt-data of a file
  both.set("prompt", prompt);
  EXPECT_EQ(resolve_generate(both).value().prompts, prompt.words);
  EXPECT_EQ(resolve_generate(both).value().prompt.path, "");
  prompt.words = {"data.jsonl"};
  prompt.where = "--prompt-data";
  both.set("prompt-data", prompt);
  EXPECT_FALSE(resolve_generate(both).ok()) << "both on the command line";
  EXPECT_FALSE(resolve_eval(values_of("", kEval)).ok()) << "no data";
  EXPECT_TRUE(resolve_sft(values_of("", kSft)).value().shuffle);
  EXPECT_FALSE(resolve_sft(values_of("rollout-shuffle = false\n", kSft)).value().shuffle);
  Values logits(kDebugLogits);
  Value greedy;
  greedy.integer = 3;
  logits.set("greedy", greedy);
  EXPECT_FALSE(resolve_debug_logits(logits).ok());
}

TEST(ModelFacts, AScriptForAnotherModelIsRefused) {
  const std::string folder = std::filesystem::path(testing::TempDir()) / "lockstep_model_facts";
  ASSERT_TRUE(make_directories(folder).ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder, "config.json"),
                                R"({"num_hidden_layers": 24, "hidden_act": "silu", "rms_norm_eps": 1e-06,
                                    "rope_parameters": {"rope_theta": 1000000.0}, "tie_word_embeddings": true})")
                  .ok());
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train", "--prompt-data",   "d",   "--num-rollout", "1", "--run-dir",
                                      "r",     "--hf-checkpoint", folder};
    words.insert(words.end(), more.begin(), more.end());
    std::string prefix;
    const auto invocation = parse_command_line(words, &prefix);
    EXPECT_TRUE(invocation.ok()) << invocation.status().message();
    const Status status = check_model_facts(invocation.value().values);
    return status.ok() ? std::string() : status.message();
  };
  EXPECT_EQ(check({"--num-layers", "24", "--swiglu", "--norm-epsilon", "1e-6", "--rotary-base", "1000000"}),
            "");
  EXPECT_NE(check({"--num-layers", "28"}).find("--num-layers 28"), std::string::npos);
  EXPECT_NE(check({"--norm-epsilon", "1e-5"}), "");
  EXPECT_NE(check({"--rotary-base", "10000"}), "");
  EXPECT_NE(check({"--untie-embeddings-and-output-weights"}), "");
  EXPECT_NE(check({"--no-swiglu"}).find("--no-swiglu: the checkpoint says hidden_act = silu"),
            std::string::npos);
  EXPECT_EQ(check({"--no-untie-embeddings-and-output-weights"}), "");
  ASSERT_TRUE(write_file_atomic(join_path(folder, "config.json"), R"({"num_hidden_layers": 24})").ok());
  EXPECT_EQ(check({"--swiglu", "--untie-embeddings-and-output-weights"}), "") << "the defaults of the format";
  EXPECT_NE(check({"--no-untie-embeddings-and-output-weights"}).find("tie_word_embeddings = false"),
            std::string::npos);
  EXPECT_NE(check({"--hidden-size", "896"}), "") << "a key that is not there states nothing";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::cli
