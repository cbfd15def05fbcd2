// SPDX-License-Identifier: Apache-2.0
#include "loop/identity.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace lockstep::loop {
namespace {

TrainConfig base() {
  TrainConfig config;
  config.hf_checkpoint = "model";
  config.prompt.path = "data.jsonl";
  config.rollout_shuffle = true;
  config.rm_type = "math";
  config.num_rollout = 10;
  config.eval.interval = 5;
  config.eval.data = {{"a", "x"}};
  config.update.loss.kl_loss_coef = 0.1;
  config.update.optimizer.decay = trainer::LrDecay::kCosine;
  return config;
}

using Change = std::function<void(TrainConfig*)>;

TEST(Identity, EveryMeaningfulValueIsInIt) {
  const std::vector<Change> changes = {
      [](TrainConfig* c) { c->prompt.input_key = "q"; },
      [](TrainConfig* c) { c->prompt.label_key = "q"; },
      [](TrainConfig* c) { c->prompt.apply_chat_template = true; },
      [](TrainConfig* c) { c->prompt.prompt_suffix = ""; },
      [](TrainConfig* c) { c->prompt.prompt_suffix = "x"; },
      [](TrainConfig* c) { c->prompt.max_prompt_len = 9; },
      [](TrainConfig* c) { c->prompt.safe_control_tokens = true; },
      [](TrainConfig* c) { c->rollout_shuffle = false; },
      [](TrainConfig* c) { c->data_order = "miles"; },
      [](TrainConfig* c) { c->rm_type = "f1"; },
      [](TrainConfig* c) { c->rollout_batch_size = 16; },
      [](TrainConfig* c) { c->n_samples_per_prompt = 4; },
      [](TrainConfig* c) { c->global_batch_size = 128; },
      [](TrainConfig* c) { c->seed = 43; },
      [](TrainConfig* c) { c->sampling.temperature = 0.5; },
      [](TrainConfig* c) { c->sampling.top_p = 0.5; },
      [](TrainConfig* c) { c->sampling.top_k = 5; },
      [](TrainConfig* c) { c->sampling.max_new_tokens = 5; },
      [](TrainConfig* c) { c->sampling.stop = {"x"}; },
      [](TrainConfig* c) { c->sampling.stop_token_ids = {5}; },
      [](TrainConfig* c) { c->eval.interval = 6; },
      [](TrainConfig* c) { c->eval.interval = 0; },
      [](TrainConfig* c) { c->eval.samples_per_prompt = 2; },
      [](TrainConfig* c) { c->eval.skip_before_train = true; },
      [](TrainConfig* c) { c->eval.sampling.temperature = 0.25; },
      [](TrainConfig* c) { c->eval.sampling.top_p = 0.25; },
      [](TrainConfig* c) { c->eval.sampling.top_k = 1; },
      [](TrainConfig* c) { c->eval.sampling.max_new_tokens = 6; },
      [](TrainConfig* c) { c->eval.sampling.stop = {"y"}; },
      [](TrainConfig* c) { c->eval.sampling.stop_token_ids = {6}; },
      [](TrainConfig* c) { c->update.loss.sequence_ratio = true; },
      [](TrainConfig* c) { c->update.loss.eps_clip = 0.1; },
      [](TrainConfig* c) { c->update.loss.eps_clip_high = 0.1; },
      [](TrainConfig* c) { c->update.loss.eps_clip_c = 2; },
      [](TrainConfig* c) { c->update.loss.subtract_mean = false; },
      [](TrainConfig* c) { c->update.loss.divide_by_std = false; },
      [](TrainConfig* c) { c->update.loss.per_token = true; },
      [](TrainConfig* c) { c->update.loss.kl_loss_coef = 0; },
      [](TrainConfig* c) { c->update.loss.kl_type = trainer::KlType::kK1; },
      [](TrainConfig* c) { c->update.loss.entropy_coef = 0.1; },
      [](TrainConfig* c) { c->update.optimizer.lr = 1e-5; },
      [](TrainConfig* c) { c->update.optimizer.min_lr = 1e-7; },
      [](TrainConfig* c) { c->update.optimizer.decay = trainer::LrDecay::kLinear; },
      [](TrainConfig* c) { c->update.optimizer.decay = trainer::LrDecay::kConstant; },
      [](TrainConfig* c) { c->update.optimizer.warmup_iters = 1; },
      [](TrainConfig* c) { c->update.optimizer.decay_iters = 11; },
      [](TrainConfig* c) { c->update.optimizer.weight_decay = 0; },
      [](TrainConfig* c) { c->update.optimizer.beta1 = 0.8; },
      [](TrainConfig* c) { c->update.optimizer.beta2 = 0.8; },
      [](TrainConfig* c) { c->update.optimizer.eps = 1e-7; },
      [](TrainConfig* c) { c->update.optimizer.clip_grad = 0.5; },
      [](TrainConfig* c) { c->update.grad_leaves = 8; },
  };
  std::set<std::string> seen = {identity_json(base(), {1})};
  for (size_t i = 0; i < changes.size(); ++i) {
    TrainConfig config = base();
    changes[i](&config);
    EXPECT_TRUE(seen.insert(identity_json(config, {1})).second)
        << "change " << i << " is not in the identity";
  }
  EXPECT_TRUE(seen.insert(identity_json(base(), {2})).second) << "end tokens";
}

TEST(Identity, FreeOptionsPathsAndValuesWithoutEffectAreNot) {
  const std::vector<Change> changes = {
      [](TrainConfig* c) { c->hf_checkpoint = "elsewhere"; },
      [](TrainConfig* c) { c->ref_load = "elsewhere"; },
      [](TrainConfig* c) { c->prompt.path = "elsewhere"; },
      [](TrainConfig* c) { c->eval.data[0].second = "elsewhere"; },
      [](TrainConfig* c) { c->machine.threads = 3; },
      [](TrainConfig* c) { c->machine.isa = "scalar"; },
      [](TrainConfig* c) { c->machine.max_tokens_per_gpu = 3; },
      [](TrainConfig* c) { c->machine.engine.max_running_requests = 3; },
      [](TrainConfig* c) { c->machine.engine.admission_shuffle = 3; },
      [](TrainConfig* c) { c->machine.engine.prefix_cache = false; },
      [](TrainConfig* c) { c->machine.engine.chunked_prefill_size = 3; },
      [](TrainConfig* c) { c->machine.engine.max_total_tokens = 3; },
      [](TrainConfig* c) { c->run_dir = c->save = c->load = "elsewhere"; },
      [](TrainConfig* c) { c->save_interval = 3, c->save_retain = 3; },
      [](TrainConfig* c) { c->global_batch_size = 256; },
      [](TrainConfig* c) { c->update.optimizer.decay_iters = 10; },
      [](TrainConfig* c) { c->sampling.stop_token_ids = {1}; },
      [](TrainConfig* c) { c->num_rollout = 20, c->update.optimizer.decay_iters = 10; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    TrainConfig config = base();
    changes[i](&config);
    EXPECT_EQ(identity_json(config, {1}), identity_json(base(), {1})) << "change " << i;
  }
}

TEST(Identity, ValuesWithoutEffectHaveOneSpelling) {
  TrainConfig a = base();
  a.update.loss.kl_loss_coef = 0;
  a.eval.interval = 0;
  a.rollout_shuffle = false;
  a.update.optimizer.decay = trainer::LrDecay::kConstant;
  TrainConfig b = a;
  b.update.loss.kl_type = trainer::KlType::kK1;
  b.eval.samples_per_prompt = 7;
  b.data_order = "miles";
  b.num_rollout = 99;
  b.update.optimizer.decay_iters = 7;
  b.update.optimizer.min_lr = 1e-9;
  EXPECT_EQ(identity_json(a, {1}), identity_json(b, {1}));
}

// The bytes of a header are hashed into every line of a ledger.
TEST(Identity, TheTextIsFixed) {
  SftConfig config;
  config.num_steps = 5;
  config.update.optimizer.decay = trainer::LrDecay::kLinear;
  EXPECT_EQ(
      identity_json(config, {3, 1}),
      R"({"input_key":"","label_key":"","apply_chat_template":false,"prompt_suffix":null,)"
      R"("rollout_max_prompt_len":0,"control_tokens":"compatible","data_order":"lockstep","rollout_seed":42,)"
      R"("end_token_ids":[3,1],"global_batch_size":16,"lr":1e-06,)"
      R"("lr_warmup_iters":0,"lr_decay_style":"linear","lr_decay_iters":5,"min_lr":0,"weight_decay":0.1,)"
      R"("adam_beta1":0.9,"adam_beta2":0.98,"adam_eps":1e-08,"clip_grad":1,"grad_leaves":32})");
}

}  // namespace
}  // namespace lockstep::loop
