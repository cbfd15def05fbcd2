// SPDX-License-Identifier: Apache-2.0
// Options of launch scripts that ask for a cluster, an engine or a kernel of somebody else: taken with the
// one value that is true here, taken without effect (and one line says why), or refused by name.
#include "cli/option_tables.h"

namespace lockstep::cli {
namespace {

// Taken by train and sft, because one script's options serve both.
constexpr CommandSet kRuns = kTrain | kSft;

Option fixed(const std::string& name, Group group, const std::string& value, const std::string& reason) {
  Option option = text_option({name, kRuns, group, Role::kFixed}, "VALUE", value, reason);
  option.target = value;
  return option;
}

Option fixed_number(const std::string& name, Group group, const std::string& value,
                    const std::string& reason) {
  Option option = real_option({name, kRuns, group, Role::kFixed}, value, {}, reason);
  option.target = value;
  return option;
}

Option ignored_flag(const std::string& name, Group group, const std::string& reason) {
  return flag_option({name, kRuns, group, Role::kIgnored}, false, reason);
}

Option ignored(const std::string& name, Group group, const std::string& reason) {
  return list_option({name, kRuns, group, Role::kIgnored}, Kind::kTexts, "VALUE", reason);
}

Option refused_flag(const std::string& name, Group group, const std::string& reason) {
  return flag_option({name, kRuns, group, Role::kRefused}, false, reason);
}

Option refused(const std::string& name, Group group, const std::string& reason) {
  return list_option({name, kRuns, group, Role::kRefused}, Kind::kTexts, "VALUE", reason);
}

std::vector<Option> parallelism() {
  const Group machine = Group::kMachine;
  const std::string one = "one process computes the model";
  const std::string ranks = "one process does all; the number of workers changes no bit";
  const std::string memory = "rollout and trainer share one process and its memory";
  const std::string recompute = "it changes no bit; see --recompute-activations";
  std::vector<Option> all;
  for (const char* name :
       {"tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
        "expert-model-parallel-size", "expert-tensor-parallel-size", "rollout-num-gpus-per-engine"}) {
    all.push_back(fixed_number(name, machine, "1", one));
  }
  for (const char* name : {"actor-num-nodes", "actor-num-gpus-per-node", "rollout-num-gpus",
                           "num-gpus-per-node", "distributed-backend", "distributed-timeout-minutes"}) {
    all.push_back(ignored(name, machine, ranks));
  }
  for (const char* name : {"sequence-parallel", "use-distributed-optimizer", "overlap-grad-reduce",
                           "overlap-param-gather", "balance-data"}) {
    all.push_back(ignored_flag(name, machine, ranks));
  }
  for (const char* name : {"colocate", "offload", "offload-train", "offload-rollout"}) {
    all.push_back(ignored_flag(name, machine, memory));
  }
  for (const char* name : {"recompute-granularity", "recompute-method", "recompute-num-layers",
                           "log-probs-chunk-size", "log-probs-max-tokens-per-gpu"}) {
    all.push_back(ignored(name, machine, recompute));
  }
  all.push_back(ignored_flag("recompute-loss-function", machine, recompute));
  all.push_back(ignored_flag("use-dynamic-batch-size", machine,
                             "micro-batches are always cut by --max-tokens-per-gpu"));
  all.push_back(ignored("micro-batch-size", machine, "micro-batches are cut by --max-tokens-per-gpu"));
  all.push_back(ignored("update-weight-buffer-size", machine, memory));
  all.push_back(ignored_flag("async-save", machine, "a checkpoint is on disk before the next step begins"));
  return all;
}

std::vector<Option> engines() {
  const Group machine = Group::kMachine;
  const std::string engine = "the rollout engine is Lockstep's own and deterministic in every setting";
  const std::string kernels = "attention is one written expression, the same on every path";
  const std::string wandb = "metrics go to metrics.jsonl of the run folder";
  std::vector<Option> all;
  for (const char* name : {"sglang-mem-fraction-static", "sglang-attention-backend", "sglang-*"}) {
    all.push_back(ignored(name, machine, engine));
  }
  all.push_back(ignored_flag("sglang-enable-deterministic-inference", machine, engine));
  all.push_back(ignored_flag("use-miles-router", machine, "there are no engines to route to"));
  all.push_back(ignored("miles-router-*", machine, "there are no engines to route to"));
  all.push_back(ignored("attention-backend", machine, kernels));
  all.push_back(ignored("transformer-impl", machine, kernels));
  all.push_back(ignored("train-backend", machine, "the trainer is Lockstep's own"));
  all.push_back(ignored("megatron-to-hf-mode", machine, "checkpoints are Hugging Face folders as they are"));
  all.push_back(
      refused("gemm", machine, "products are Lockstep's own; vendor libraries are not in this release"));
  all.push_back(ignored_flag("use-wandb", Group::kRun, wandb));
  for (const char* name : {"wandb-host", "wandb-team", "wandb-project", "wandb-group", "wandb-*"}) {
    all.push_back(ignored(name, Group::kRun, wandb));
  }
  return all;
}

std::vector<Option> numerics() {
  const Group training = Group::kTraining, model = Group::kModel;
  const std::string same = "rollout and trainer compute the same bits, so the weight is exactly 1";
  Option deterministic = flag_option({"deterministic-mode", kConfigurable, Group::kMachine, Role::kFixed},
                                     true, "vendor mode is not in this release");
  deterministic.target = "true";
  Option version = real_option({"numerics", kConfigurable, model, Role::kFixed}, "1", {},
                               "the numerics version of this release");
  version.target = "1";
  // A clip that leaves 1 alone has no effect; another one would.
  Option tis_clip = real_option({"tis-clip", kTrain, training, Role::kIgnored}, "", at_least(1), same);
  Option tis_clip_low =
      real_option({"tis-clip-low", kTrain, training, Role::kIgnored}, "", between(0, 1), same);
  return {
      std::move(deterministic),
      std::move(version),
      refused_flag("fp16", model, "there is no fp16 profile; see --profile"),
      fixed_number("attention-dropout", model, "0", "there is no dropout"),
      fixed_number("hidden-dropout", model, "0", "there is no dropout"),
      ignored_flag("group-query-attention", model, "heads and groups are read from config.json"),
      ignored("max-position-embeddings", model, "read from config.json"),
      ignored("seq-length", model, "lengths follow from the samples"),
      ignored("make-vocab-size-divisible-by", model, "read from config.json"),
      ignored("model-name", model, "read from config.json"),
      refused_flag("qk-layernorm", model, "no model with norms on q and k is in this release"),
      ignored_flag("accumulate-allreduce-grads-in-fp32", training,
                   "gradients are summed exactly, as integers"),
      ignored_flag("attention-softmax-in-fp32", training, "the softmax is binary32 always"),
      fixed("optimizer", training, "adam", "AdamW is the optimizer of this release"),
      fixed_number("lr-warmup-init", training, "0", "the warm-up begins at lr / --lr-warmup-iters"),
      refused("lr-warmup-fraction", training, "give --lr-warmup-iters"),
      fixed_number("kl-coef", training, "0",
                   "a KL term in the reward is not in this release; see --kl-loss-coef"),
      ignored_flag("use-tis", training, same),
      std::move(tis_clip),
      std::move(tis_clip_low),
      ignored_flag("use-rollout-logprobs", training, "the trainer's log-probabilities are the same bits"),
      ignored_flag("get-mismatch-metrics", training, "the mismatch is exactly 0; the run stops if it is not"),
      ignored_flag("true-on-policy-mode", training, "it is the only mode"),
      ignored_flag("recompute-logprobs-via-prefill", training, "prefill and decode give the same bits"),
      ignored("gamma", training, "there is no value function"),
      ignored("lambd", training, "there is no value function"),
      ignored("seed", training, "all randomness follows from --rollout-seed"),
      refused_flag("normalize-advantages", training, "advantages are normalised within a group only"),
      refused_flag("use-unbiased-kl", training, "not in this release; see --kl-loss-type"),
      refused_flag("use-opsm", training, "not in this release"),
      refused_flag("use-opd", training, "not in this release"),
      refused_flag("reset-optimizer-states", training, "not in this release"),
      refused("ref-update-interval", training, "the reference model stays as it is in this release"),
  };
}

std::vector<Option> loop() {
  const Group rollout = Group::kRollout, run = Group::kRun;
  Option rl_loss = text_option({"loss-type", kTrain, Group::kTraining, Role::kFixed}, "NAME", "policy_loss",
                               "the loss of train; `lockstep sft` has the supervised one");
  rl_loss.target = "policy_loss";
  Option sft_loss = text_option({"loss-type", kSft, Group::kTraining, Role::kFixed}, "NAME", "sft_loss",
                                "the loss of sft; `lockstep train` has the other");
  sft_loss.target = "sft_loss";
  const std::string own = "not in this release; filters will decide in prompt order";
  return {
      flag_option({"calculate-per-token-loss", kSft, Group::kTraining, Role::kIgnored}, false,
                  "the loss of sft is always the mean over all tokens of the answers"),
      std::move(rl_loss),
      std::move(sft_loss),
      refused("over-sampling-batch-size", rollout, own),
      refused("dynamic-sampling-filter-path", rollout, own),
      refused_flag("partial-rollout", rollout, "every sample of a step is finished within it"),
      refused_flag("fully-async", rollout, "every sample of a step is finished within it"),
      refused("num-epoch", rollout, "give --num-rollout"),
      refused("start-rollout-id", run, "a run goes on from the newest checkpoint in --load"),
      refused("save-hf", run, "every checkpoint in --save is a Hugging Face folder as it is"),
      refused("rollout-function-path", rollout, "there is no Python here"),
      refused("custom-generate-function-path", rollout, "there is no Python here"),
      refused("custom-rm-path", Group::kReward, "there is no Python here; see --rm-type"),
      refused("rm-url", Group::kReward, "rewards are computed here; see --rm-type"),
      refused("eval-config", Group::kEval, "give --eval-prompt-data"),
  };
}

}  // namespace

std::vector<Option> foreign_options() {
  std::vector<Option> all;
  for (auto* part : {parallelism, engines, numerics, loop}) {
    for (Option& option : part()) all.push_back(std::move(option));
  }
  return all;
}

}  // namespace lockstep::cli
