// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "cli/command_line.h"
#include "cli/describe.h"
#include "cli/resolve.h"
#include "core/file.h"
#include "loop/identity.h"

namespace lockstep::cli {
namespace {

std::string error_of(const std::string& text, CommandSet command = kTrain) {
  Values values(command);
  std::vector<std::string> notes;
  const Status status = read_config_text(text, "run.toml", &values, &notes);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalid);
  return status.message();
}

TEST(ConfigFile, KeysFlatOrInTheTableOfTheirGroup) {
  Values values(kTrain);
  std::vector<std::string> notes;
  const std::string text =
      "rollout_seed = 7\n"
      "lr-decay-style = \"cosine\"\n"
      "[rollout]\nnum_rollout = 5\nrollout-stop = [\"a\", \"b\"]\nrollout_stop_token_ids = 9\n"
      "[training]\nlr = 1e-6\nweight_decay = 1\nuse-kl-loss = true\n"
      "[eval]\neval_prompt_data = [\"gsm8k\", \"test.jsonl\"]\n";
  ASSERT_TRUE(read_config_text(text, "run.toml", &values, &notes).ok());
  EXPECT_EQ(values.integer("rollout-seed"), 7);
  EXPECT_EQ(values.text("lr-decay-style"), "cosine");
  EXPECT_EQ(values.integer("num-rollout"), 5);
  EXPECT_EQ(values.real("lr"), 1e-6);
  EXPECT_EQ(values.real("weight-decay"), 1.0);
  EXPECT_TRUE(values.flag("use-kl-loss"));
  EXPECT_EQ(values.texts("rollout-stop"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values.integers("rollout-stop-token-ids"), std::vector<int64_t>{9});
  EXPECT_EQ(values.texts("eval-prompt-data"), (std::vector<std::string>{"gsm8k", "test.jsonl"}));
  EXPECT_EQ(notes.size(), 0U);
}

// A misspelt, misplaced, doubled or mistyped key trains with defaults for hours elsewhere.
TEST(ConfigFile, EveryMistakeIsRefusedWithFileLineKeyAndRemedy) {
  EXPECT_EQ(error_of("lr = 1e-6\nlr_decay_styl = \"cosine\"\n"),
            "run.toml:2: lr_decay_styl: unknown key; did you mean lr-decay-style in [training]?");
  EXPECT_EQ(error_of("[training]\n\nlearning_rat = 1e-6\n"),
            "run.toml:3: training.learning_rat: unknown key; did you mean lr in [training]?");
  EXPECT_EQ(error_of("[rollout]\nlearning-rate = 1e-6\n"),
            "run.toml:2: rollout.learning-rate: unknown key; did you mean lr in [training]?");
  EXPECT_EQ(error_of("[rollout]\ntemperature = 1\n"),
            "run.toml:2: rollout.temperature: unknown key; did you mean rollout-temperature in [rollout]?");
  EXPECT_EQ(error_of("[rollout]\nlr = 1e-6\n"), "run.toml:2: rollout.lr: belongs in [training]");
  EXPECT_EQ(error_of("lr = \"1e-6\"\n"),
            "run.toml:1: lr: wants a number, found text; write 1e-6 without quotes");
  EXPECT_EQ(error_of("num-rollout = \"5\"\n"),
            "run.toml:1: num-rollout: wants a whole number, found text; write 5 without quotes");
  EXPECT_EQ(error_of("num-rollout = 5.0\n"),
            "run.toml:1: num-rollout: wants a whole number, found a number with a fraction");
  EXPECT_EQ(error_of("rollout-shuffle = \"true\"\n"),
            "run.toml:1: rollout-shuffle: wants true or false, found text; write true without quotes");
  EXPECT_EQ(error_of("rm-type = 5\n"), "run.toml:1: rm-type: wants text in quotes, found a whole number");
  EXPECT_EQ(error_of("rollout-stop-token-ids = [1, \"2\"]\n"),
            "run.toml:1: rollout-stop-token-ids: wants an array of whole numbers, found an array");
  EXPECT_EQ(error_of("lr = inf\n"), "run.toml:1: lr: is not a finite number");
  EXPECT_EQ(error_of("lr = -1\n"), "run.toml:1: lr: -1 is out of range; take from 0 to 1000");
  EXPECT_EQ(error_of("lr = 1\nlr = 2\n"),
            "run.toml:2: bad key-value pair: cannot redefine existing integer 'lr'; give it once");
  EXPECT_EQ(error_of("adam-eps = 1\nadam_eps = 2\n"),
            "run.toml:2: adam_eps: given twice (also run.toml:1: adam-eps); give it once");
  EXPECT_EQ(error_of("lr = 1\n[training]\nlr = 2\n"),
            "run.toml:3: training.lr: given twice (also run.toml:1: lr); give it once");
  EXPECT_EQ(error_of("[trainning]\nlr = 1\n"),
            "run.toml:1: trainning: unknown table; did you mean [training]?");
  EXPECT_EQ(error_of("rollout = 5\n"),
            "run.toml:1: rollout: is the name of a table; write [rollout] and keys below it");
  EXPECT_EQ(error_of("[training.adam]\nbeta1 = 1\n").substr(0, 35), "run.toml:1: training.adam: unknown ");
  EXPECT_EQ(error_of("dry-run = true\n"), "run.toml:1: dry-run: stands on the command line only: --dry-run");
  EXPECT_EQ(
      error_of("tensor-model-parallel-size = 2\n"),
      "run.toml:1: tensor-model-parallel-size: '2' is refused, only 1 is taken: one process computes the "
      "model");
  EXPECT_EQ(error_of("lr = = 1\n").substr(0, 12), "run.toml:1: ");
  EXPECT_EQ(error_of("lr = 1\n\xff\n").substr(0, 9), "run.toml:");
  EXPECT_EQ(error_of("input-key = \"a\\u0000b\"\n"),
            "run.toml:1: input-key: holds a NUL character; remove it");
  for (const char* text : {"lr = = 1\n", "\"a\\nb\" = 1\n", "lr = \"a\\nb\"\n", "x = \"\n"}) {
    const std::string message = error_of(text);
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ConfigFile, LongKeysAreRefusedBeforeTheyAreParsed) {
  std::string dots = "a";
  for (int i = 0; i < 100000; ++i) dots += ".a";
  const std::string said = ": a key of more than 16 parts; keys are option names, in a table or in none";
  EXPECT_EQ(error_of("lr = 1\n" + dots + " = 1\n"), "run.toml:2" + said);
  EXPECT_EQ(error_of("# '\n[" + dots + "]\n"), "run.toml:2" + said);
  EXPECT_EQ(error_of("input-key = \"\"\"\n\n\"\"\"\nx = {" + dots + " = 1}\n"), "run.toml:4" + said);
  const std::string plain(100, '.');
  EXPECT_EQ(error_of("input-key = \"" + plain + "\"  # " + plain + "\n"), "");
  EXPECT_EQ(
      error_of("input-key = '''" + plain + "'''\nrollout-stop = ['" + plain + "', \"" + plain + "\"]\n"), "");
}

TEST(ConfigFile, TheCommandLineWinsAndKeysOfOtherCommandsAreNamed) {
  const std::string path = std::filesystem::path(testing::TempDir()) / "lockstep_config_test.toml";
  ASSERT_TRUE(write_file_atomic(path,
                                "lr = 1e-3\nrollout-shuffle = true\nhf-checkpoint = \"m\"\nrm-type = \"f1\"\n"
                                "eval-prompt-data = [\"a\", \"b\"]\nmax-tokens-per-gpu = 5\n")
                  .ok());
  std::string prefix;
  const auto invocation = parse_command_line({"train", "--no-rollout-shuffle", "--lr", "1", "--prompt-data",
                                              "d", "--num-rollout", "1", "--run-dir", "r", "--config", path},
                                             &prefix);
  ASSERT_TRUE(invocation.ok()) << invocation.status().message();
  EXPECT_EQ(invocation.value().values.real("lr"), 1.0);
  EXPECT_FALSE(invocation.value().values.flag("rollout-shuffle"));
  EXPECT_EQ(invocation.value().values.text("rm-type"), "f1");
  const auto eval = parse_command_line({"eval", "--config", path}, &prefix);
  ASSERT_TRUE(eval.ok()) << eval.status().message();
  ASSERT_EQ(eval.value().notes.size(), 1U);
  EXPECT_NE(eval.value().notes[0].find("not used here: lr, max-tokens-per-gpu, rollout-shuffle"),
            std::string::npos)
      << eval.value().notes[0];
  std::filesystem::remove(path);
}

// Every field off its default, so that a field that describe() forgets shows.
const char* const kEveryField = R"(
hf-checkpoint = "model dir"
ref-load = "ref"
prompt-data = "data.jsonl@[3:9]"
input-key = "q\"\\\u0001é"
label-key = "a"
apply-chat-template = true
prompt-suffix = ""
rollout-max-prompt-len = 77
control-tokens = "safe"
rollout-shuffle = true
data-order = "miles"
rm-type = "boxed_math"
num-rollout = 9
rollout-batch-size = 6
n-samples-per-prompt = 4
global-batch-size = 12
rollout-seed = 9223372036854775807
rollout-max-response-len = 33
rollout-temperature = 0.7
rollout-top-p = 0.9
rollout-top-k = 20
rollout-stop = ["\n\n", "Q:"]
rollout-stop-token-ids = [7, 5]
eval-interval = 3
eval-prompt-data = ["a", "x", "b", "y"]
skip-eval-before-train = true
n-samples-per-eval-prompt = 2
eval-max-response-len = 44
eval-temperature = 0
eval-top-p = 0.5
eval-top-k = 3
advantage-estimator = "gspo"
eps-clip = 0.0003
eps-clip-high = 0.0004
eps-clip-c = 3
disable-grpo-std-normalization = true
calculate-per-token-loss = true
use-kl-loss = true
kl-loss-coef = 0.001
kl-loss-type = "k2"
entropy-coef = 0.1
lr = 3e-6
min-lr = 1e-7
lr-decay-style = "cosine"
lr-warmup-iters = 2
lr-decay-iters = 50
weight-decay = 0.01
adam-beta1 = 0.8
adam-beta2 = 0.95
adam-eps = 1e-9
clip-grad = 0.5
grad-leaves = 8
threads = 3
isa = "scalar"
max-tokens-per-gpu = 100
recompute-activations = true
max-running-requests = 5
admission = "shuffle:12"
prefix-cache = "off"
chunked-prefill-size = 17
max-total-tokens = 4096
run-dir = "run"
save = "save"
load = "load"
save-interval = 4
save-retain = 2
)";

template <typename Resolve>
auto resolved(const std::string& toml, CommandSet command, Resolve resolve) {
  Values values(command);
  std::vector<std::string> notes;
  const Status status = read_config_text(toml, "run.toml", &values, &notes);
  EXPECT_TRUE(status.ok()) << status.message();
  auto config = resolve(values);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::move(config).value();
}

Result<loop::TrainConfig> train_of(const Values& values) {
  std::vector<std::string> warnings;
  return resolve_train(values, &warnings);
}

TEST(Describe, TrainRoundTripsWithEveryFieldOffItsDefault) {
  const loop::TrainConfig config = resolved(kEveryField, kTrain, train_of);
  const std::string text = describe(config);
  const loop::TrainConfig again = resolved(text, kTrain, train_of);
  EXPECT_EQ(describe(again), text);
  EXPECT_EQ(loop::identity_json(again, {1}), loop::identity_json(config, {1}));
  EXPECT_EQ(again.hf_checkpoint, "model dir");
  EXPECT_EQ(again.ref_load, "ref");
  EXPECT_EQ(again.prompt.path, "data.jsonl@[3:9]");
  EXPECT_EQ(again.prompt.input_key, "q\"\\\x01é");
  EXPECT_EQ(again.prompt.prompt_suffix, "");
  EXPECT_EQ(again.seed, 9223372036854775807U);
  EXPECT_EQ(again.eval.data, config.eval.data);
  EXPECT_EQ(again.sampling.stop_token_ids, (std::vector<int32_t>{5, 7}));
  EXPECT_EQ(again.machine.threads, 3);
  EXPECT_EQ(again.machine.isa, "scalar");
  EXPECT_EQ(again.machine.max_tokens_per_gpu, 100);
  EXPECT_TRUE(again.machine.recompute_activations);
  EXPECT_EQ(again.machine.engine.max_running_requests, 5);
  EXPECT_EQ(again.machine.engine.admission_shuffle, 12U);
  EXPECT_FALSE(again.machine.engine.prefix_cache);
  EXPECT_EQ(again.machine.engine.chunked_prefill_size, 17);
  EXPECT_EQ(again.machine.engine.max_total_tokens, 4096);
  EXPECT_EQ(again.run_dir + again.save + again.load, "runsaveload");
  EXPECT_EQ(again.save_interval, 4);
  EXPECT_EQ(again.save_retain, 2);
  EXPECT_EQ(again.num_rollout, 9);
}

TEST(Describe, DefaultsRoundTripAndAreTheStructs) {
  const std::string least =
      "hf-checkpoint = \"m\"\nprompt-data = \"d\"\nrm-type = \"math\"\nnum-rollout = 3\nrun-dir = \"r\"\n";
  const loop::TrainConfig config = resolved(least, kTrain, train_of);
  EXPECT_EQ(describe(resolved(describe(config), kTrain, train_of)), describe(config));
  loop::TrainConfig plain;
  plain.hf_checkpoint = "m", plain.prompt.path = "d", plain.rm_type = "math", plain.num_rollout = 3,
  plain.run_dir = "r", plain.global_batch_size = 256, plain.machine.device.device = "auto";
  EXPECT_EQ(describe(config), describe(plain));
  loop::SftConfig sft;
  sft.hf_checkpoint = "m", sft.prompt.path = "d", sft.num_steps = 3, sft.run_dir = "r",
  sft.machine.device.device = "auto";
  EXPECT_EQ(describe(resolved(least, kSft, resolve_sft)), describe(sft));
}

// The recipe in configs/ is the one of the launch script (command_line_test.cpp has the script as it is).
TEST(Recipe, IsTheLaunchScripts) {
  const auto text = read_file(join_path(LOCKSTEP_TEST_DATA, "../../configs/qwen2.5-0.5b-gsm8k.toml"));
  ASSERT_TRUE(text.ok()) << text.status().message();
  loop::TrainConfig recipe = resolved(text.value(), kTrain, train_of);
  std::string prefix;
  const auto script = parse_command_line({"train",
                                          "--hf-checkpoint",
                                          "m",
                                          "--prompt-data",
                                          "d",
                                          "--apply-chat-template",
                                          "--rollout-shuffle",
                                          "--rm-type",
                                          "math",
                                          "--num-rollout",
                                          "100",
                                          "--rollout-batch-size",
                                          "32",
                                          "--n-samples-per-prompt",
                                          "8",
                                          "--rollout-max-response-len",
                                          "1024",
                                          "--rollout-temperature",
                                          "1",
                                          "--global-batch-size",
                                          "256",
                                          "--eval-interval",
                                          "20",
                                          "--eval-prompt-data",
                                          "gsm8k",
                                          "e",
                                          "--n-samples-per-eval-prompt",
                                          "1",
                                          "--eval-max-response-len",
                                          "1024",
                                          "--eval-top-k",
                                          "1",
                                          "--max-tokens-per-gpu",
                                          "9216",
                                          "--advantage-estimator",
                                          "grpo",
                                          "--use-kl-loss",
                                          "--kl-loss-coef",
                                          "0.00",
                                          "--kl-loss-type",
                                          "low_var_kl",
                                          "--kl-coef",
                                          "0.00",
                                          "--entropy-coef",
                                          "0.00",
                                          "--eps-clip",
                                          "0.2",
                                          "--eps-clip-high",
                                          "0.28",
                                          "--optimizer",
                                          "adam",
                                          "--lr",
                                          "1e-6",
                                          "--lr-decay-style",
                                          "constant",
                                          "--weight-decay",
                                          "0.1",
                                          "--adam-beta1",
                                          "0.9",
                                          "--adam-beta2",
                                          "0.98",
                                          "--calculate-per-token-loss",
                                          "--run-dir",
                                          "r"},
                                         &prefix);
  ASSERT_TRUE(script.ok()) << script.status().message();
  const auto of_script = train_of(script.value().values);
  ASSERT_TRUE(of_script.ok()) << of_script.status().message();
  EXPECT_EQ(loop::identity_json(recipe, {}), loop::identity_json(of_script.value(), {}));
}

TEST(Describe, OtherCommandsRoundTrip) {
  const loop::SftConfig sft = resolved(kEveryField, kSft, resolve_sft);
  EXPECT_EQ(describe(resolved(describe(sft), kSft, resolve_sft)), describe(sft));
  EXPECT_EQ(sft.batch_size, 12);
  EXPECT_EQ(sft.num_steps, 9);
  const loop::EvalCommandConfig eval = resolved(kEveryField, kEval, resolve_eval);
  EXPECT_EQ(describe(resolved(describe(eval), kEval, resolve_eval)), describe(eval));
  EXPECT_EQ(eval.eval.sampling.max_new_tokens, 44);
  const loop::GenerateConfig generate = resolved(kEveryField, kGenerate, resolve_generate);
  EXPECT_EQ(describe(resolved(describe(generate), kGenerate, resolve_generate)), describe(generate));
}

}  // namespace
}  // namespace lockstep::cli
