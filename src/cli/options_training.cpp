// SPDX-License-Identifier: Apache-2.0
// Settings of an update, and what launch scripts say about the model.
#include "cli/option_tables.h"

namespace lockstep::cli {
namespace {

constexpr double kMaxUpdates = 1e9;

std::vector<Option> loss() {
  const Group group = Group::kTraining;
  const Role identity = Role::kIdentity;
  return {
      int_option({"global-batch-size", kTrain, group, identity}, "", between(1, 1e11),
                 "samples an update; default: all of a step, which is one update a step"),
      int_option({"num-steps-per-rollout", kTrain, group, identity}, "", between(1, 1e9),
                 "updates a step, instead of --global-batch-size"),
      int_option({"global-batch-size", kSft, group, identity}, "16", between(1, 1e6), "rows a step"),
      choice_option({"advantage-estimator", kTrain, group, identity}, "grpo|gspo", "grpo",
                    "grpo: one ratio a token; gspo: one a sequence"),
      real_option({"eps-clip", kTrain, group, identity}, "0.2", between(0, 1),
                  "the ratio is held above 1 - X"),
      real_option({"eps-clip-high", kTrain, group, identity}, "", between(0, 1e6),
                  "and below 1 + X; default: --eps-clip"),
      real_option({"eps-clip-c", kTrain, group, identity}, "0", or_special(above(1, 1e6), 0),
                  "dual clip for negative advantages; 0: off"),
      flag_option({"disable-rewards-normalization", kTrain, group, identity}, false,
                  "the advantage is the reward itself: no mean taken off, no division"),
      flag_option({"disable-grpo-std-normalization", kTrain, group, identity}, false,
                  "no division by the standard deviation of the group (Dr. GRPO)"),
      flag_option({"calculate-per-token-loss", kTrain, group, identity}, false,
                  "mean over all tokens of the batch; without it: mean of each sample, then over samples"),
      flag_option({"use-kl-loss", kTrain, group, identity}, false,
                  "the KL term; wants --kl-loss-coef above 0"),
      real_option({"kl-loss-coef", kTrain, group, identity}, "0", between(0, 1e6),
                  "weight of the KL term against --ref-load"),
      choice_option({"kl-loss-type", kTrain, group, identity}, "k1|k2|k3|low_var_kl", "low_var_kl",
                    "the estimator"),
      real_option({"entropy-coef", kTrain, group, identity}, "0", between(-1e3, 1e3),
                  "weight of the entropy bonus"),
  };
}

std::vector<Option> optimizer() {
  const Group group = Group::kTraining;
  const Role identity = Role::kIdentity;
  const CommandSet both = kTrain | kSft;
  return {
      real_option({"lr", both, group, identity}, "1e-6", between(0, 1e3), "learning rate of AdamW"),
      real_option({"min-lr", both, group, identity}, "0", between(0, 1e3), "where linear and cosine end"),
      choice_option({"lr-decay-style", both, group, identity}, "constant|linear|cosine", "constant",
                    "after the warm-up"),
      int_option({"lr-warmup-iters", both, group, identity}, "0", between(0, kMaxUpdates),
                 "updates of linear warm-up"),
      int_option({"lr-decay-iters", both, group, identity}, "0", between(0, kMaxUpdates),
                 "updates until --min-lr; 0: all of the run"),
      real_option({"weight-decay", both, group, identity}, "0.1", between(0, 1e3),
                  "decoupled; none for vectors (norm gains, biases)"),
      real_option({"adam-beta1", both, group, identity}, "0.9", below(0, 1), "decay of the first moment"),
      real_option({"adam-beta2", both, group, identity}, "0.98", below(0, 1), "decay of the second moment"),
      real_option({"adam-eps", both, group, identity}, "1e-8", above(0, 1), "added to the root"),
      real_option({"clip-grad", both, group, identity}, "1", between(0, 1e9), "largest global norm; 0: off"),
      int_option({"grad-leaves", both, group, identity}, "32", between(1, 4096),
                 "leaves the gradient sum is cut into: bounds how many ranks can share an update"),
  };
}

Option stated(Option option, const std::string& key) {
  option.role = Role::kStated;
  option.target = key;
  return option;
}

Option fixed_flag(const std::string& name, const std::string& reason) {
  Option option = flag_option({name, kConfigurable, Group::kModel, Role::kFixed}, true, reason);
  option.target = "true";
  return option;
}

}  // namespace

std::vector<Option> training_options() {
  std::vector<Option> all = loss();
  for (Option& option : optimizer()) all.push_back(std::move(option));
  return all;
}

std::vector<Option> model_facts() {
  const About about{"", kConfigurable, Group::kModel, Role::kStated};
  const auto count = [&](const char* name, const char* key) {
    About named = about;
    named.name = name;
    return stated(int_option(named, "", at_least(1), "checked against config.json"), key);
  };
  const auto real = [&](const char* name, const char* key) {
    About named = about;
    named.name = name;
    return stated(real_option(named, "", above(0, 1e12), "checked against config.json"), key);
  };
  Option swiglu = stated(flag_option({"swiglu", kConfigurable, Group::kModel, Role::kStated}, false,
                                     "checked against config.json"),
                         "hidden_act=silu");
  Option untied =
      stated(flag_option({"untie-embeddings-and-output-weights", kConfigurable, Group::kModel, Role::kStated},
                         false, "checked against config.json"),
             "tie_word_embeddings=false");
  Option normalization = text_option({"normalization", kConfigurable, Group::kModel, Role::kFixed}, "NAME",
                                     "RMSNorm", "the norm of the models this release computes");
  normalization.target = "RMSNorm";
  Option position = text_option({"position-embedding-type", kConfigurable, Group::kModel, Role::kFixed},
                                "NAME", "rope", "the positions of the models this release computes");
  position.target = "rope";
  return {
      count("num-layers", "num_hidden_layers"),
      count("hidden-size", "hidden_size"),
      count("ffn-hidden-size", "intermediate_size"),
      count("num-attention-heads", "num_attention_heads"),
      count("num-query-groups", "num_key_value_heads"),
      count("vocab-size", "vocab_size"),
      real("norm-epsilon", "rms_norm_eps"),
      real("rotary-base", "rope_theta"),
      std::move(swiglu),
      std::move(untied),
      std::move(normalization),
      std::move(position),
      fixed_flag("use-rotary-position-embeddings", "the models this release computes rotate q and k"),
      fixed_flag("disable-bias-linear", "the models this release computes have biases on q, k and v only"),
      fixed_flag("add-qkv-bias", "the models this release computes have biases on q, k and v"),
  };
}

}  // namespace lockstep::cli
