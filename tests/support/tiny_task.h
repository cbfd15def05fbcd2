// SPDX-License-Identifier: Apache-2.0
// A tiny model, its tokenizer and a task on which a random model gets unequal rewards: files for whole runs.
#pragma once

#include <string>

#include "core/check.h"
#include "core/file.h"
#include "demo/model_files.h"
#include "demo/problems.h"
#include "program.h"

namespace lockstep::testing {

struct TinyTask {
  std::string folder, model, train_data, eval_data, sft_data;

  // Options of a short GRPO run with every term of the loss in it.
  Arguments train(const std::string& run, const Arguments& more = {}) const {
    Arguments out = {"train",
                     "--hf-checkpoint",
                     model,
                     "--prompt-data",
                     train_data,
                     "--input-key",
                     "question",
                     "--label-key",
                     "answer",
                     "--apply-chat-template",
                     "--rollout-shuffle",
                     "--rm-type",
                     "f1",
                     "--num-rollout",
                     "4",
                     "--rollout-batch-size",
                     "4",
                     "--n-samples-per-prompt",
                     "5",
                     "--rollout-max-response-len",
                     "14",
                     "--rollout-seed",
                     "7",
                     "--lr",
                     "0.01",
                     "--weight-decay",
                     "0.1",
                     "--use-kl-loss",
                     "--kl-loss-coef",
                     "0.02",
                     "--kl-loss-type",
                     "k3",
                     "--entropy-coef",
                     "0.01",
                     "--calculate-per-token-loss",
                     "--grad-leaves",
                     "6",
                     "--eval-interval",
                     "2",
                     "--eval-prompt-data",
                     "unseen",
                     eval_data,
                     "--eval-max-response-len",
                     "8",
                     "--save-interval",
                     "1",
                     "--run-dir",
                     run};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
};

// Fails the test process when a file can not be made.
inline TinyTask make_tiny_task(const std::string& folder,
                               const std::string& config_json = demo::model_config_json()) {
  const auto must = [](const Status& status) { LOCKSTEP_CHECK(status.ok(), status.message()); };
  must(remove_all(folder));
  must(make_directories(folder + "/tokenizer"));
  must(write_file_atomic(folder + "/config.json", config_json));
  must(write_file_atomic(folder + "/tokenizer/tokenizer.json", demo::tokenizer_json()));
  must(write_file_atomic(folder + "/tokenizer/tokenizer_config.json", demo::tokenizer_config_json()));
  const demo::ProblemSet problems = demo::make_problems(11, 6);
  // The label is a set of words, some of which a random model says: F1 then differs from sample to sample.
  std::string label;
  for (const std::string& word : demo::problem_words()) label += word;
  const auto rows = [&](const std::vector<demo::Problem>& list, size_t count) {
    std::string text;
    for (size_t i = 0; i < count && i < list.size(); ++i) {
      text += "{\"question\":\"" + list[i].question + "\",\"answer\":\"" + label + "\"}\n";
    }
    return text;
  };
  TinyTask task;
  task.folder = folder;
  task.model = folder + "/model";
  task.train_data = folder + "/train.jsonl";
  task.eval_data = folder + "/eval.jsonl";
  task.sft_data = folder + "/sft.jsonl";
  must(write_file_atomic(task.train_data, rows(problems.train, 13)));
  must(write_file_atomic(task.eval_data, rows(problems.test, 3)));
  must(write_file_atomic(task.sft_data,
                         demo::warmup_jsonl(demo::make_warmup_rows(3, problems, {4, 4, 0.5, 0.5, 0.5}))));
  const ProgramResult init = run_program({"init", "--model-config", folder + "/config.json", "--tokenizer",
                                          folder + "/tokenizer", "--save", task.model, "--rollout-seed", "5"},
                                         folder + "/init");
  LOCKSTEP_CHECK(init.exit_code == 0, init.err);
  return task;
}

}  // namespace lockstep::testing
