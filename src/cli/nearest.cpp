// SPDX-License-Identifier: Apache-2.0
#include "cli/nearest.h"

#include <vector>

#include "core/suggest.h"

namespace lockstep::cli {
namespace {

// What other tools call an option.
struct OtherName {
  const char* other;
  const char* name;
};
constexpr OtherName kOtherNames[] = {
    {"learning-rate", "lr"},
    {"lr-scheduler-type", "lr-decay-style"},
    {"warmup-steps", "lr-warmup-iters"},
    {"max-grad-norm", "clip-grad"},
    {"grad-clip", "clip-grad"},
    {"beta1", "adam-beta1"},
    {"beta2", "adam-beta2"},
    {"kl-coefficient", "kl-loss-coef"},
    {"beta", "kl-loss-coef"},
    {"epsilon", "eps-clip"},
    {"clip-range", "eps-clip"},
    {"model", "hf-checkpoint"},
    {"model-path", "hf-checkpoint"},
    {"checkpoint", "hf-checkpoint"},
    {"dataset", "prompt-data"},
    {"train-data", "prompt-data"},
    {"data-path", "prompt-data"},
    {"test-data", "eval-prompt-data"},
    {"eval-data", "eval-prompt-data"},
    {"prompt-key", "input-key"},
    {"answer-key", "label-key"},
    {"reward", "rm-type"},
    {"grader", "rm-type"},
    {"steps", "num-rollout"},
    {"num-steps", "num-rollout"},
    {"max-steps", "num-rollout"},
    {"train-iters", "num-rollout"},
    {"epochs", "num-rollout"},
    {"batch-size", "rollout-batch-size"},
    {"group-size", "n-samples-per-prompt"},
    {"num-generations", "n-samples-per-prompt"},
    {"max-new-tokens", "rollout-max-response-len"},
    {"max-tokens", "rollout-max-response-len"},
    {"max-completion-length", "rollout-max-response-len"},
    {"max-prompt-length", "rollout-max-prompt-len"},
    {"seed", "rollout-seed"},
    {"shuffle", "rollout-shuffle"},
    {"stop", "rollout-stop"},
    {"output-dir", "run-dir"},
    {"output", "out"},
    {"resume", "load"},
    {"save-steps", "save-interval"},
    {"eval-steps", "eval-interval"},
    {"num-threads", "threads"},
    {"max-batch-size", "max-running-requests"},
};

bool fits(const Option& option, CommandSet commands, const Group* group) {
  return (option.commands & commands) != 0 && !option.is_prefix() &&
         (group == nullptr || option.group == *group);
}

// "temperature" is a part of "rollout-temperature", "top" is none of "rollout-stop".
bool is_part(std::string_view part, std::string_view name) {
  const size_t at = name.find(part);
  if (part.empty() || at == std::string_view::npos) return false;
  const size_t end = at + part.size();
  return (at == 0 || name[at - 1] == '-') && (end == name.size() || name[end] == '-');
}

}  // namespace

const Option* nearest_option(std::string_view name, CommandSet commands, const Group* group) {
  std::vector<std::string> names;
  for (const Option& option : all_options()) {
    if (fits(option, commands, group)) names.push_back(option.name);
  }
  for (const OtherName& pair : kOtherNames) names.emplace_back(pair.other);
  std::string near = nearest_name(name, names);
  for (const OtherName& pair : kOtherNames) {
    if (near == pair.other) near = pair.name;
  }
  if (const Option* option = find_option(near, commands);
      option != nullptr && fits(*option, commands, group)) {
    return option;
  }
  for (const Option& option : all_options()) {
    if (fits(option, commands, group) && (is_part(name, option.name) || is_part(option.name, name)))
      return &option;
  }
  return nullptr;
}

}  // namespace lockstep::cli
