// SPDX-License-Identifier: Apache-2.0
// Options that do something here: model, data, rollout, reward, evaluation, run folder, machine, and those of
// single commands. Names and meanings are those of the Miles and Megatron scripts wherever there are such.
#include "cli/option_tables.h"

namespace lockstep::cli {
namespace {

constexpr CommandSet kPrompts = kTrain | kSft | kEval | kGenerate;
constexpr CommandSet kSamples = kTrain | kEval | kGenerate;
constexpr double kMaxTokens = 1 << 20;
constexpr double kMaxSteps = 1e9;

std::vector<Option> model_and_data() {
  const Group model = Group::kModel, data = Group::kData;
  Option suffix = text_option(
      {"prompt-suffix", kPrompts, data, Role::kIdentity}, "TEXT", "",
      "added to a text prompt or to the last user message; default: nothing, but for rows in GSM8K's own "
      "columns what --rm-type wants (math: a request to reason and to box the answer)");
  suffix.may_be_empty = true;
  return {
      required(text_option(
          {"hf-checkpoint", kPrompts | kDebugLogits, model, Role::kPath}, "DIR", "",
          "Hugging Face folder: config.json, safetensors and, where text is read, the tokenizer")),
      choice_option(
          {"profile", kPrompts | kDebugLogits, model, Role::kIdentity}, "fp32|bf16", "fp32",
          "fp32: weights and activations in float32; bf16: in bfloat16 with the sums of a Hopper tensor "
          "core, emulated on a CPU, and float32 masters in the optimizer"),
      flag_option({"bf16", kPrompts | kDebugLogits, model, Role::kIdentity}, false,
                  "the same as --profile bf16"),
      text_option({"ref-load", kTrain, model, Role::kPath}, "DIR", "",
                  "reference model of the KL term; default: --hf-checkpoint. Not read without a KL term"),
      required(text_option({"prompt-data", kTrain | kSft, data, Role::kPath}, "FILE", "",
                           "JSONL, one row a line; FILE@[a:b] takes rows a to b-1")),
      text_option({"prompt-data", kGenerate, data, Role::kPath}, "FILE", "",
                  "JSONL of prompts; FILE@[a:b] takes rows a to b-1"),
      text_option({"input-key", kPrompts, data, Role::kIdentity}, "KEY", "",
                  "column of the prompt, text or messages; default: the first of messages, prompt, question "
                  "that is there"),
      text_option({"label-key", kPrompts, data, Role::kIdentity}, "KEY", "",
                  "column of the label; default: label, or answer beside question; else there is none"),
      flag_option({"apply-chat-template", kPrompts, data, Role::kIdentity}, false,
                  "render prompts with the chat template of the tokenizer"),
      std::move(suffix),
      flag_option({"rollout-shuffle", kTrain, data, Role::kIdentity}, false,
                  "prompts in another order every epoch; without it in the order of the file"),
      flag_option({"rollout-shuffle", kSft, data, Role::kIdentity}, true,
                  "rows in another order every epoch; --no-rollout-shuffle: in the order of the file"),
      choice_option(
          {"data-order", kTrain | kSft, data, Role::kIdentity}, "lockstep|miles", "lockstep",
          "how --rollout-shuffle orders: our keyed permutation, or the order Miles draws for that seed"),
      int_option(
          {"rollout-max-prompt-len", kPrompts, data, Role::kIdentity}, "0", between(0, kMaxTokens),
          "a prompt of more tokens is an error that names its row (nothing is cut or dropped); 0: no limit"),
      choice_option(
          {"control-tokens", kPrompts, data, Role::kIdentity}, "compatible|safe", "compatible",
          "compatible: the text of a control token inside a message becomes that token, as elsewhere; "
          "safe: it stays text"),
  };
}

std::vector<Option> rollout() {
  const Group group = Group::kRollout;
  const Range temperature = or_special(between(0x1p-10, 0x1p10), 0);
  return {
      required(
          int_option({"num-rollout", kTrain | kSft, group, Role::kFree}, "", between(1, kMaxSteps),
                     "steps of the run, counted from its beginning; a larger number carries a finished run "
                     "on (it enters the identity only through a falling --lr-decay-style)")),
      int_option({"rollout-batch-size", kTrain, group, Role::kIdentity}, "32", between(1, 1e6),
                 "prompts a step"),
      int_option({"n-samples-per-prompt", kTrain, group, Role::kIdentity}, "8", between(1, 1e5),
                 "samples of a prompt: the group of GRPO"),
      int_option({"n-samples-per-prompt", kGenerate, group, Role::kIdentity}, "1", between(1, 1e5),
                 "samples of a prompt"),
      int_option({"rollout-max-response-len", kSamples, group, Role::kIdentity}, "1024",
                 between(1, kMaxTokens), "new tokens of a sample at most; the end token counts"),
      real_option({"rollout-temperature", kSamples, group, Role::kIdentity}, "1", temperature,
                  "0: greedy, log-probabilities at temperature 1"),
      real_option({"rollout-top-p", kSamples, group, Role::kIdentity}, "1", above(0, 1),
                  "keep the shortest prefix of tokens with this mass; 1: off"),
      int_option({"rollout-top-k", kSamples, group, Role::kIdentity}, "-1",
                 or_special(between(1, kMaxTokens), -1), "keep the K likeliest tokens; -1: off"),
      list_option({"rollout-stop", kSamples, group, Role::kIdentity}, Kind::kTexts, "TEXT ...",
                  "generation ends with the token that completes one of these texts"),
      list_option({"rollout-stop-token-ids", kSamples, group, Role::kIdentity}, Kind::kInts, "ID ...",
                  "generation ends with one of these tokens; the model's own end tokens count always"),
      int_option({"rollout-seed", kPrompts | kInit | kDemo, group, Role::kIdentity}, "42", at_least(0),
                 "all randomness follows from it"),
      text_option({"rm-type", kTrain | kEval, Group::kReward, Role::kIdentity}, "NAME", "",
                  "gsm8k, math, f1, dapo, or boxed_gsm8k, boxed_math, boxed_f1: the content of the last box "
                  "is graded"),
  };
}

std::vector<Option> evaluation() {
  const Group group = Group::kEval;
  const CommandSet commands = kTrain | kEval;
  return {
      int_option({"eval-interval", kTrain, group, Role::kIdentity}, "0", between(0, kMaxSteps),
                 "evaluate every N steps, and before the first; 0: never"),
      list_option({"eval-prompt-data", commands, group, Role::kPath}, Kind::kPairs, "NAME FILE ...",
                  "data sets to evaluate on; FILE@[a:b] takes rows a to b-1"),
      flag_option({"skip-eval-before-train", kTrain, group, Role::kIdentity}, false,
                  "no evaluation before the first step"),
      int_option({"n-samples-per-eval-prompt", commands, group, Role::kIdentity}, "1", between(1, 1e5),
                 "samples of a prompt"),
      int_option({"eval-max-response-len", commands, group, Role::kIdentity}, "", between(1, kMaxTokens),
                 "default: --rollout-max-response-len"),
      real_option({"eval-temperature", commands, group, Role::kIdentity}, "",
                  or_special(between(0x1p-10, 0x1p10), 0), "default: --rollout-temperature; 0: greedy"),
      real_option({"eval-top-p", commands, group, Role::kIdentity}, "", above(0, 1),
                  "default: --rollout-top-p"),
      int_option({"eval-top-k", commands, group, Role::kIdentity}, "", or_special(between(1, kMaxTokens), -1),
                 "default: --rollout-top-k; 1: greedy; -1: off"),
  };
}

std::vector<Option> run_and_machine() {
  const Group run = Group::kRun, machine = Group::kMachine;
  const CommandSet runs = kTrain | kSft;
  const CommandSet computes = kPrompts | kDebugLogits;
  return {
      required(
          text_option({"run-dir", runs, run, Role::kPath}, "DIR", "",
                      "ledger, metrics, samples and checkpoints; a folder of the same run is gone on from")),
      text_option({"save", runs, run, Role::kPath}, "DIR", "", "checkpoints go here; default: --run-dir"),
      text_option({"load", runs, run, Role::kPath}, "DIR", "",
                  "checkpoints to go on from; default: --save, then --run-dir"),
      int_option({"save-interval", runs, run, Role::kFree}, "0", between(0, kMaxSteps),
                 "a checkpoint every N steps and after the last; 0: after the last only"),
      int_option({"save-retain", runs, run, Role::kFree}, "-1", or_special(between(1, kMaxSteps), -1),
                 "keep the newest N checkpoints; -1: all"),
      int_option({"threads", computes, machine, Role::kFree}, "0", between(0, 1024), "0: every core"),
      choice_option({"isa", computes, machine, Role::kFree}, "auto|scalar|avx2|avx512", "auto",
                    "instruction set of the kernels; auto: the widest of this processor"),
      choice_option({"device", computes, machine, Role::kFree}, "auto|cpu|cuda", "auto",
                    "where the model computes; auto: a GPU that can, else the CPU"),
      int_option({"gpu-index", computes, machine, Role::kFree}, "0", between(0, 1023), "which GPU"),
      int_option({"gpu-sms", computes, machine, Role::kFree}, "0", between(0, 100000),
                 "multiprocessors of the GPU to use; 0: all"),
      choice_option({"cuda-graphs", computes, machine, Role::kFree}, "on|off", "on",
                    "replay recorded steps of decoding on the GPU instead of launching them"),
      flag_option({"recompute-activations", runs | kDebugLogits, machine, Role::kFree}, false,
                  "keep only each layer's input for the backward pass: less memory, a third more work"),
      int_option({"max-tokens-per-gpu", runs | kDebugLogits, machine, Role::kFree}, "2048",
                 between(1, kMaxTokens * 64),
                 "tokens of a micro-batch (one sample at least): memory against speed"),
      int_option({"max-running-requests", kSamples, machine, Role::kFree}, "64", between(1, 65536),
                 "sequences decoded together"),
      text_option({"admission", kSamples, machine, Role::kFree}, "fifo|shuffle:SEED", "fifo",
                  "order in which samples enter the engine"),
      choice_option({"prefix-cache", kSamples, machine, Role::kFree}, "on|off", "on",
                    "one prefill for all samples of a prompt"),
      int_option({"chunked-prefill-size", kSamples, machine, Role::kFree}, "512", between(1, kMaxTokens),
                 "prompt tokens a step at most"),
      int_option(
          {"decode-steps", kSamples, machine, Role::kFree}, "0", between(0, 64),
          "tokens a sequence is given before the scheduler looks again; 0: what the device likes best"),
      int_option({"max-total-tokens", kSamples, machine, Role::kFree}, "0", between(0, 1e12),
                 "tokens in the KV cache; 0: enough for --max-running-requests"),
  };
}

Option command_line_only(Option option) {
  option.only_command_line = true;
  return option;
}

}  // namespace

std::vector<Option> own_options() {
  std::vector<Option> all;
  for (auto* part : {model_and_data, rollout, evaluation, run_and_machine}) {
    for (Option& option : part()) all.push_back(std::move(option));
  }
  return all;
}

std::vector<Option> command_options() {
  const Group group = Group::kCommand;
  Option prompt = list_option({"prompt", kGenerate, group, Role::kIdentity}, Kind::kTexts, "TEXT ...",
                              "prompts: a user message each with --apply-chat-template, else raw text");
  prompt.repeatable = true;
  std::vector<Option> all = {
      text_option(
          {"config", kConfigurable, group, Role::kPath}, "FILE", "",
          "TOML: option names as keys, flat or in [model] [data] [rollout] [reward] [training] [eval] "
          "[run] [machine]; the command line wins over it"),
      flag_option(
          {"dry-run", kConfigurable, group, Role::kFree}, false,
          "print the resolved configuration (itself a --config file) and the memory it takes; do nothing"),
      flag_option({"help", kEveryCommand, group, Role::kFree}, false, "this text"),
      std::move(prompt),
      text_option({"out", kEval, group, Role::kPath}, "FILE", "", "JSONL of prompts, responses and rewards"),
      text_option({"out", kGenerate, group, Role::kPath}, "FILE", "", "JSONL; default: standard output"),
      required(text_option({"out", kDebugLogits, group, Role::kPath}, "FILE", "", "safetensors to write")),
      text_option({"out", kDemo, group, Role::kPath}, "DIR", "lockstep-demo", "a new folder"),
      required(text_option({"model-config", kInit, group, Role::kPath}, "FILE", "", "a config.json")),
      text_option({"tokenizer", kInit, group, Role::kPath}, "DIR", "",
                  "tokenizer files to copy beside the weights"),
      required(text_option({"save", kInit, group, Role::kPath}, "DIR", "", "a new folder")),
      flag_option({"prefix", kVerify, group, Role::kFree}, false,
                  "a run that ends earlier is the same if it is a beginning of the other"),
      flag_option({"digests", kInspect, group, Role::kFree}, true,
                  "of every tensor; --no-digests reads less"),
      flag_option({"statistics", kInspect, group, Role::kFree}, false,
                  "smallest, largest, mean, NaN and infinities of every tensor"),
      required(text_option({"tokenizer", kDebugTokenize | kDebugTemplate, group, Role::kPath}, "DIR", "",
                           "folder of tokenizer.json and tokenizer_config.json")),
      required(text_option({"rm-type", kDebugGrade, group, Role::kIdentity}, "NAME", "",
                           "gsm8k, math, f1, dapo, boxed_gsm8k, boxed_math or boxed_f1")),
      required(text_option({"tokens", kDebugLogits, group, Role::kPath}, "FILE", "",
                           "safetensors with `tokens`, int32 or int64 [B, T]")),
      flag_option({"grads", kDebugLogits, group, Role::kFree}, false,
                  "the gradient of every parameter as well"),
      int_option({"greedy", kDebugLogits, group, Role::kFree}, "0", between(0, kMaxTokens),
                 "N new tokens after the first P of each row"),
      int_option({"prompt-len", kDebugLogits, group, Role::kFree}, "0", between(0, kMaxTokens),
                 "P of --greedy"),
  };
  for (Option& option : all) option = command_line_only(std::move(option));
  return all;
}

}  // namespace lockstep::cli
