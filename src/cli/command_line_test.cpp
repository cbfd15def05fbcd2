// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/help.h"
#include "cli/resolve.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The whole error line, or "" when there is none.
std::string error_of(const std::vector<std::string>& words) {
  std::string prefix;
  const Result<Invocation> result = parse_command_line(words, &prefix);
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), StatusCode::kInvalid);
  return prefix + ": " + result.status().message();
}
std::string error_of(const std::string& text) {
  return error_of(split(text));
}

const char* const kLeast =
    "train --hf-checkpoint m --prompt-data d --rm-type math --num-rollout 3 --run-dir r ";

Invocation parsed(const std::string& text) {
  std::string prefix;
  Result<Invocation> result = parse_command_line(split(text), &prefix);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result.value() : Invocation{};
}

TEST(OptionTable, NamesAreUniqueInACommandAndEveryOptionHasHelp) {
  for (const Command& command : all_commands()) {
    std::set<std::string> names;
    for (const Option& option : all_options()) {
      if ((option.commands & command.bit) == 0) continue;
      EXPECT_TRUE(names.insert(option.name).second) << command.name << " " << option.name;
    }
  }
  for (const Option& option : all_options()) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_NE(option.commands, 0U) << option.name;
    EXPECT_TRUE(option.kind == Kind::kFlag || !option.value.empty()) << option.name;
    EXPECT_NE(option.name.substr(0, 3), "no-") << "--no- is the other form of a flag: " << option.name;
    const bool has_target = option.role == Role::kFixed || option.role == Role::kStated;
    EXPECT_EQ(has_target, !option.target.empty()) << option.name;
  }
}

TEST(OptionTable, DefaultsAreValuesTheOptionTakes) {
  for (const Option& option : all_options()) {
    if (option.fallback.empty() || option.kind == Kind::kFlag) continue;
    Value value;
    const Status status = set_words(option, {option.fallback}, &value);
    EXPECT_TRUE(status.ok()) << option.name << " " << status.message();
  }
}

// Every option of the reproducibility script, and of the model it sources.
TEST(OptionTable, TakesTheWholeLaunchScript) {
  const std::string script =
      "train --run-dir r --hf-checkpoint /root/Qwen2.5-0.5B-Instruct/ --ref-load /root/Qwen2.5_torch_dist/ "
      "--prompt-data /root/gsm8k/train.jsonl --input-key messages --label-key label --apply-chat-template "
      "--rollout-shuffle --rm-type math --num-rollout 100 --rollout-batch-size 32 --n-samples-per-prompt 8 "
      "--rollout-max-response-len 1024 --rollout-temperature 1 --global-batch-size 256 --eval-interval 20 "
      "--eval-prompt-data gsm8k /root/gsm8k/test.jsonl --n-samples-per-eval-prompt 1 --eval-max-response-len "
      "1024 "
      "--eval-top-k 1 --tensor-model-parallel-size 1 --sequence-parallel --pipeline-model-parallel-size 1 "
      "--context-parallel-size 1 --expert-model-parallel-size 1 --expert-tensor-parallel-size 1 "
      "--use-dynamic-batch-size --max-tokens-per-gpu 9216 --advantage-estimator grpo --use-kl-loss "
      "--kl-loss-coef 0.00 --kl-loss-type low_var_kl --kl-coef 0.00 --entropy-coef 0.00 --eps-clip 0.2 "
      "--eps-clip-high 0.28 --optimizer adam --lr 1e-6 --lr-decay-style constant --weight-decay 0.1 "
      "--adam-beta1 0.9 --adam-beta2 0.98 --use-wandb --wandb-host https://wandb.example/ --wandb-team t "
      "--wandb-project p --wandb-group g --rollout-num-gpus-per-engine 1 --sglang-mem-fraction-static 0.7 "
      "--sglang-enable-deterministic-inference --sglang-attention-backend flashinfer --deterministic-mode "
      "--attention-dropout 0.0 --hidden-dropout 0.0 --accumulate-allreduce-grads-in-fp32 "
      "--attention-softmax-in-fp32 --attention-backend flash --actor-num-nodes 1 --actor-num-gpus-per-node 8 "
      "--colocate --calculate-per-token-loss --use-miles-router --swiglu --num-layers 24 --hidden-size 896 "
      "--ffn-hidden-size 4864 --num-attention-heads 14 --use-rotary-position-embeddings "
      "--disable-bias-linear "
      "--add-qkv-bias --normalization RMSNorm --norm-epsilon 1e-6 --rotary-base 1000000 "
      "--group-query-attention "
      "--num-query-groups 2 --vocab-size 151936";
  const Invocation invocation = parsed(script);
  std::vector<std::string> warnings;
  const auto config = resolve_train(invocation.values, &warnings);
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].rfind("--use-kl-loss: no effect, for --kl-loss-coef is 0", 0), 0U) << warnings[0];
  EXPECT_EQ(config.value().num_rollout, 100);
  EXPECT_EQ(config.value().update.loss.eps_clip_high, 0.28);
  EXPECT_EQ(config.value().eval.sampling.top_k, 1);
  EXPECT_EQ(config.value().sampling.top_k, -1);
  // Every option without effect is said once.
  size_t ignored = 0;
  for (const auto& [name, value] : invocation.values.all_given()) {
    const Option* option = find_option(name, kTrain);
    ASSERT_NE(option, nullptr) << name;
    ignored += option->role == Role::kIgnored ? 1 : 0;
  }
  EXPECT_EQ(invocation.notes.size(), ignored);
  EXPECT_EQ(ignored, 18U);
}

TEST(CommandLine, ErrorsNameTheOptionAndTheRemedy) {
  const std::string least = kLeast;
  EXPECT_EQ(error_of(least + "--lr-decay-styl cosine"),
            "lockstep train: --lr-decay-styl: unknown option; did you mean --lr-decay-style?");
  EXPECT_EQ(
      error_of(least + "--lr-decay-style cosin"),
      "lockstep train: --lr-decay-style: 'cosin' is not one of constant|linear|cosine; did you mean cosine?");
  EXPECT_EQ(error_of(least + "--lr 1 --lr 2"), "lockstep train: --lr: given twice (--lr); give it once");
  EXPECT_EQ(error_of(least + "--rollout-shuffle --no-rollout-shuffle"),
            "lockstep train: --no-rollout-shuffle: given twice (--rollout-shuffle); give it once");
  EXPECT_EQ(error_of(least + "--lr 1e-6x"), "lockstep train: --lr: '1e-6x' is not a number");
  EXPECT_EQ(error_of(least + "--lr nan"), "lockstep train: --lr: 'nan' is not a number");
  EXPECT_EQ(error_of(least + "--lr 1e999"), "lockstep train: --lr: '1e999' is out of range of binary64");
  EXPECT_EQ(error_of(least + "--threads 2.5"), "lockstep train: --threads: '2.5' is not a whole number");
  EXPECT_EQ(error_of(least + "--threads 99999999999999999999"),
            "lockstep train: --threads: '99999999999999999999' is out of range; take from 0 to "
            "1024");
  EXPECT_EQ(
      error_of(least + "--rollout-seed 99999999999999999999"),
      "lockstep train: --rollout-seed: '99999999999999999999' is out of range; take at least 0 and at most "
      "9223372036854775807");
  EXPECT_NE(error_of(least + "--device gpu").find("did you mean cuda?"), std::string::npos);
  EXPECT_EQ(error_of(least + "--device x").find("did you mean"), std::string::npos);
  EXPECT_EQ(error_of(least + "--rollout-top-p 0"),
            "lockstep train: --rollout-top-p: 0 is out of range; take above 0 and at most 1");
  EXPECT_EQ(
      error_of(least + "--rollout-temperature 1e-4"),
      "lockstep train: --rollout-temperature: 1e-04 is out of range; take from 0.0009765625 to 1024, or 0");
  EXPECT_EQ(error_of(least + "--rollout-top-k 0"),
            "lockstep train: --rollout-top-k: 0 is out of range; take from 1 to 1048576, or -1");
  EXPECT_EQ(error_of(least + "--adam-beta2 1"),
            "lockstep train: --adam-beta2: 1 is out of range; take at least 0 and below 1");
  EXPECT_EQ(error_of(least + "--threads"),
            "lockstep train: --threads: needs a value: --threads N (a value that begins with two dashes: "
            "--threads=VALUE)");
  EXPECT_EQ(error_of(least + "--rollout-shuffle=true"),
            "lockstep train: --rollout-shuffle: takes no value; --rollout-shuffle or --no-rollout-shuffle");
  EXPECT_EQ(error_of(least + "extra"),
            "lockstep train: extra: unexpected word; usage: lockstep train --config "
            "FILE | options");
  EXPECT_EQ(error_of("eval --hf-checkpoint m --lr 1"),
            "lockstep eval: --lr: not an option of eval; it belongs to train, sft");
  EXPECT_EQ(error_of("verify a"), "lockstep verify: usage: lockstep verify A B [--prefix]");
  EXPECT_EQ(error_of("trian"), "lockstep: trian: unknown command; did you mean train?");
  EXPECT_EQ(error_of("debug tokenise"),
            "lockstep: debug tokenise: unknown command; did you mean debug tokenize?");
  EXPECT_EQ(error_of("train -v"), "lockstep train: -v: unknown option; options begin with two dashes");
  EXPECT_EQ(error_of("--lr 1"),
            "lockstep: --lr: unknown option; a command comes first: lockstep COMMAND ...");
  EXPECT_EQ(error_of("train --config /no/such/file.toml").substr(0, 45),
            "lockstep train: --config: /no/such/file.toml:");
  EXPECT_NE(error_of("train --hf-checkpoint m").find("is required"), std::string::npos);
  EXPECT_EQ(error_of({"train", "--hf-checkpoint", ""}),
            "lockstep train: --hf-checkpoint: is empty; give DIR or leave the option out");
  EXPECT_EQ(error_of({"train", "--input-key", "a\xff"}),
            "lockstep train: --input-key: 'a\\xff' is not UTF-8");
}

TEST(CommandLine, WordsAreShownShortAndAsUtf8) {
  const std::string least = kLeast;
  EXPECT_LT(error_of(least + "--" + std::string(100000, 'x')).size(), 200U);
  EXPECT_LT(error_of(std::string(100000, 'x')).size(), 200U);
  EXPECT_LT(error_of(least + std::string(100000, 'x')).size(), 200U);
  for (const char* words : {"train --a\xff", "tr\xff", "-\xff", "train -\xff"}) {
    const std::string message = error_of(std::string(words));
    EXPECT_NE(message.find("\\xff"), std::string::npos) << message;
    EXPECT_TRUE(is_utf8(message));
  }
  std::string wide = "x";
  for (int i = 0; i < 50; ++i) wide += "\xc3\xa4";
  EXPECT_TRUE(is_utf8(shown(wide)));
}

TEST(CommandLine, OutOfMemoryNamesWhatTheCommandHas) {
  for (const Command& command : all_commands()) {
    const std::string prefix = "lockstep " + std::string(command.name);
    const DeviceError gpu("allocating", true);
    for (std::string word : split(out_of_memory_text(prefix) + " " + device_error_text(prefix, gpu))) {
      if (word[0] == '(') word.erase(0, 1);
      if (word.back() == ';') word.pop_back();
      if (word.rfind("--", 0) != 0) continue;
      EXPECT_NE(find_option(word.substr(2), command.bit), nullptr) << command.name << " " << word;
    }
  }
}

TEST(CommandLine, DeviceErrorsSayWhatFailedAndWhatToDo) {
  const std::string memory =
      device_error_text("lockstep train", DeviceError("no room for the weights", true));
  EXPECT_EQ(memory.rfind("no room for the weights; ", 0), 0U);
  EXPECT_NE(memory.find("--max-tokens-per-gpu"), std::string::npos);
  EXPECT_NE(memory.find("last checkpoint"), std::string::npos);
  const std::string lost = device_error_text("lockstep eval", DeviceError("an illegal address"));
  EXPECT_EQ(lost.find("--max-tokens-per-gpu"), std::string::npos);
  EXPECT_EQ(lost.find("checkpoint"), std::string::npos);
  EXPECT_NE(lost.find("the GPU or its driver failed"), std::string::npos);
}

TEST(CommandLine, ForeignValuesThatAskForMoreAreRefused) {
  const std::string least = kLeast;
  EXPECT_NE(error_of(least + "--gemm vendor").find("vendor libraries are not in this release"),
            std::string::npos);
  EXPECT_EQ(error_of(least + "--tensor-model-parallel-size 2"),
            "lockstep train: --tensor-model-parallel-size: '2' is refused, only 1 is taken: one process "
            "computes the "
            "model");
  EXPECT_NE(error_of(least + "--attention-dropout 0.1"), "");
  EXPECT_NE(error_of(least + "--optimizer sgd"), "");
  EXPECT_NE(error_of(least + "--kl-coef 0.1"), "");
  EXPECT_EQ(error_of(least + "--bf16"), "");
  EXPECT_EQ(error_of(least + "--profile bf16 --bf16"), "");
  EXPECT_NE(error_of(least + "--profile fp16"), "");
  EXPECT_NE(error_of(least + "--tis-clip 0.5"), "");
  EXPECT_NE(error_of(least + "--no-add-qkv-bias"), "");
  EXPECT_EQ(error_of(least + "--no-deterministic-mode"),
            "lockstep train: --no-deterministic-mode: 'false' is refused, only true is taken: vendor mode is "
            "not in "
            "this release");
  EXPECT_EQ(error_of(least + "--advantage-estimator ppo"),
            "lockstep train: --advantage-estimator: 'ppo' is not one of grpo|gspo; did you mean grpo?");
  EXPECT_EQ(error_of(least + "--no-bf16 --use-tis --tis-clip 2 --sglang-log-level debug --sglang-some-flag"),
            "");
}

TEST(CommandLine, ValuesInAllForms) {
  const Invocation invocation =
      parsed(std::string(kLeast) +
             "--lr=2e-5 --rollout-top-k -1 --eval-prompt-data a x@[0:8] b y --eval-interval 5 "
             "--no-rollout-shuffle --rollout-stop-token-ids 5 3 5");
  EXPECT_EQ(invocation.values.real("lr"), 2e-5);
  EXPECT_EQ(invocation.values.integer("rollout-top-k"), -1);
  EXPECT_EQ(invocation.values.texts("eval-prompt-data"),
            (std::vector<std::string>{"a", "x@[0:8]", "b", "y"}));
  EXPECT_FALSE(invocation.values.flag("rollout-shuffle"));
  EXPECT_EQ(invocation.values.integers("rollout-stop-token-ids"), (std::vector<int64_t>{5, 3, 5}));
  const Invocation minus_zero = parsed(std::string(kLeast) + "--entropy-coef -0.0");
  EXPECT_FALSE(std::signbit(minus_zero.values.real("entropy-coef"))) << "-0 and 0 are one identity";
  EXPECT_NE(error_of(std::string(kLeast) + "--eval-prompt-data a x b"), "");
  const Invocation prompts = parsed("generate --hf-checkpoint m --prompt a b --prompt c --threads 2");
  EXPECT_EQ(prompts.values.texts("prompt"), (std::vector<std::string>{"a", "b", "c"}));
  const Invocation verify = parsed("verify a --prefix b");
  EXPECT_EQ(verify.words, (std::vector<std::string>{"a", "b"}));
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_TRUE(parsed("").help);
  EXPECT_TRUE(parsed("--version").version);
  EXPECT_EQ(parsed("help train").command, kTrain);
  EXPECT_TRUE(parsed("train --lr 1e-6 --help").help);
  EXPECT_EQ(parsed("debug").topic, "debug");
  EXPECT_EQ(parsed("help debug logits").command, kDebugLogits);
  for (const Command& command : all_commands()) {
    const std::string text = command_help(command.bit);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << line;
    for (const Option& option : all_options()) {
      if ((option.commands & command.bit) == 0) continue;
      EXPECT_NE(text.find("--" + option.name), std::string::npos) << command.name << " " << option.name;
    }
  }
}

std::string tree_file(const std::string& name) {
  std::ifstream file(std::filesystem::path(LOCKSTEP_TEST_DATA) / ".." / ".." / name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Help, TheDocumentHoldsTheTables) {
  EXPECT_NE(tree_file("docs/options.md").find(options_markdown()), std::string::npos)
      << "replace the tables of docs/options.md by the output of `lockstep help --markdown`";
}

TEST(Help, VersionIsTheProjects) {
  const std::string version = split(version_text())[1];
  EXPECT_NE(tree_file("CMakeLists.txt").find("project(lockstep VERSION " + version + " "), std::string::npos)
      << version;
}

}  // namespace
}  // namespace lockstep::cli
