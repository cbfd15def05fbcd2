// SPDX-License-Identifier: Apache-2.0
#include "cli/option.h"

#include <limits>

#include "cli/option_tables.h"
#include "core/check.h"

namespace lockstep::cli {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

Option base(const About& about, Kind kind, const std::string& fallback, const std::string& help) {
  Option option;
  option.name = about.name;
  option.commands = about.commands;
  option.group = about.group;
  option.role = about.role;
  option.kind = kind;
  option.fallback = fallback;
  option.help = help;
  return option;
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = {
      {kTrain, "train", "the RL loop: rollout, reward, update", "--config FILE | options",
       "Samples answers, grades them and updates the weights, step by step, and records every phase in the "
       "run "
       "folder. A second start on the folder of the same run goes on from its newest checkpoint. The same "
       "configuration, checkpoint, data and seed give the same bits, whatever the free options say.",
       0, 0},
      {kSft, "sft", "supervised warm-up", "--config FILE | options",
       "Trains on the answers of a data file: the last assistant turn of a conversation, or prompt and "
       "label.",
       0, 0},
      {kEval, "eval", "score a checkpoint", "--config FILE | options",
       "Samples answers to the prompts of one or more data sets and prints the mean reward of each.", 0, 0},
      {kGenerate, "generate", "sample from a checkpoint", "--prompt TEXT ... | --prompt-data FILE, options",
       "Writes one JSON line a sample: response, token ids of prompt and response, log-probabilities.", 0, 0},
      {kInit, "init", "a random checkpoint", "--model-config FILE --save DIR [options]",
       "Makes a checkpoint of random weights for a config.json; the seed decides every bit of it.", 0, 0},
      {kVerify, "verify", "two runs or checkpoints: same bits? else the first difference", "A B [--prefix]",
       "Compares two run folders, two checkpoint folders or two safetensors files. Exit code 0: the same; "
       "1: different, and the first step, phase and tensor; 3: not comparable, and the field of the "
       "identity; "
       "2: unreadable.",
       2, 2},
      {kInspect, "inspect", "what a checkpoint, ledger or tensor file holds",
       "PATH [--statistics] [--no-digests]",
       "Prints what is in a run folder, a ledger, a checkpoint folder or a safetensors file.", 1, 1},
      {kDemo, "demo", "the whole story in three minutes", "[--out DIR] [--rollout-seed N]",
       "Makes a small model and a data set, warms it up, trains it with GRPO, does that again under other "
       "schedules and a kill, and compares the runs.",
       0, 0},
      {kDebugTokenize, "debug tokenize", "texts to token ids", "--tokenizer DIR < JSONL",
       "Reads {\"text\"} a line from standard input and writes {\"ids\"} a line.", 0, 0},
      {kDebugTemplate, "debug template", "messages to text", "--tokenizer DIR < JSONL",
       "Reads {\"messages\", \"add_generation_prompt\"} a line from standard input and writes {\"text\"} a "
       "line.",
       0, 0},
      {kDebugGrade, "debug grade", "responses and labels to rewards", "--rm-type NAME < JSONL",
       "Reads {\"response\", \"label\"} a line from standard input and writes {\"reward\"} a line.", 0, 0},
      {kDebugLogits, "debug logits", "logits, loss and gradients of given tokens",
       "--hf-checkpoint DIR --tokens FILE --out FILE [--grads] [--greedy N --prompt-len P]",
       "Writes logits, the loss, on demand the gradient of every parameter and greedy continuations, for "
       "comparison with another implementation.",
       0, 0},
      {kDebugTc16, "debug tc16", "the tensor-core step against known answers", "FILE",
       "Computes every row of a file of recorded tensor-core results and counts those that are equal.", 1, 1},
  };
  return commands;
}

const Command& command_of(CommandSet bit) {
  for (const Command& command : all_commands()) {
    if (command.bit == bit) return command;
  }
  LOCKSTEP_CHECK(false, "no command has this bit");
  return all_commands().front();
}

const char* group_name(Group group) {
  switch (group) {
    case Group::kModel:
      return "model";
    case Group::kData:
      return "data";
    case Group::kRollout:
      return "rollout";
    case Group::kReward:
      return "reward";
    case Group::kTraining:
      return "training";
    case Group::kEval:
      return "eval";
    case Group::kRun:
      return "run";
    case Group::kMachine:
      return "machine";
    case Group::kCommand:
      return "command";
  }
  return "";
}

const char* group_title(Group group) {
  switch (group) {
    case Group::kModel:
      return "Model";
    case Group::kData:
      return "Data";
    case Group::kRollout:
      return "Rollout";
    case Group::kReward:
      return "Reward";
    case Group::kTraining:
      return "Training";
    case Group::kEval:
      return "Evaluation";
    case Group::kRun:
      return "Run folder";
    case Group::kMachine:
      return "Machine: free options, which change no bit";
    case Group::kCommand:
      return "Command";
  }
  return "";
}

std::vector<std::string> Option::choices() const {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= value.size()) {
    const size_t end = std::min(value.find('|', begin), value.size());
    names.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

const std::vector<Option>& all_options() {
  static const std::vector<Option> options = [] {
    std::vector<Option> all;
    for (auto* part : {own_options, training_options, command_options, model_facts, foreign_options}) {
      for (Option& option : part()) all.push_back(std::move(option));
    }
    return all;
  }();
  return options;
}

const Option* find_option(std::string_view name, CommandSet commands) {
  const Option* by_prefix = nullptr;
  for (const Option& option : all_options()) {
    if ((option.commands & commands) == 0) continue;
    if (option.name == name && !option.is_prefix()) return &option;
    if (option.is_prefix()) {
      const std::string_view prefix(option.name.data(), option.name.size() - 1);
      if (name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix) by_prefix = &option;
    }
  }
  return by_prefix;
}

Option flag_option(const About& about, bool fallback, const std::string& help) {
  return base(about, Kind::kFlag, fallback ? "true" : "false", help);
}

Option int_option(const About& about, const std::string& fallback, Range range, const std::string& help) {
  Option option = base(about, Kind::kInt, fallback, help);
  option.value = "N";
  option.range = range;
  return option;
}

Option real_option(const About& about, const std::string& fallback, Range range, const std::string& help) {
  Option option = base(about, Kind::kReal, fallback, help);
  option.value = "X";
  option.range = range;
  return option;
}

Option text_option(const About& about, const std::string& value, const std::string& fallback,
                   const std::string& help) {
  Option option = base(about, Kind::kText, fallback, help);
  option.value = value;
  return option;
}

Option choice_option(const About& about, const std::string& choices, const std::string& fallback,
                     const std::string& help) {
  Option option = base(about, Kind::kChoice, fallback, help);
  option.value = choices;
  return option;
}

Option list_option(const About& about, Kind kind, const std::string& value, const std::string& help) {
  Option option = base(about, kind, "", help);
  option.value = value;
  return option;
}

Option required(Option option) {
  option.required = true;
  return option;
}

Range at_least(double lowest) {
  return {lowest, kUnbounded};
}
Range between(double lowest, double highest) {
  return {lowest, highest};
}
Range above(double lowest, double highest) {
  return {lowest, highest, true};
}
Range below(double lowest, double highest) {
  return {lowest, highest, false, true};
}
Range or_special(Range range, double special) {
  range.has_special = true;
  range.special = special;
  return range;
}

}  // namespace lockstep::cli
