// SPDX-License-Identifier: Apache-2.0
// Prompts of a data file as token ids, and what of them belongs to a run's identity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "data/chat_template.h"
#include "data/prompt_order.h"
#include "data/prompts.h"
#include "data/tokenizer.h"
#include "loop/config.h"

namespace lockstep::loop {

// The tokenizer of a checkpoint folder and its end tokens.
struct TextModel {
  data::Tokenizer tokenizer;
  std::vector<int32_t> end_ids;  // generation_config.json's, else config.json's; and the tokenizer's eos
  std::string end_source;        // ids and where they come from, for the log
  std::string files_sha256;      // of the tokenizer's files: identity
};
// config_eos: the ids of config.json. vocab: the model's. Errors name the file; no end token at all is one.
Result<TextModel> load_text_model(const std::string& folder, const std::vector<int32_t>& config_eos,
                                  int64_t vocab);

struct Prompt {
  std::vector<int32_t> ids;
  std::string label;
};

// A prompt with the answer to learn, which ends with an end token.
struct Demonstration {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> response_ids;
};

class PromptSource {
 public:
  // Reads and checks the whole file, and encodes every prompt. default_suffix: of the grader, for GSM8K
  // columns; it follows the question on a line of its own. require_label: a row without a label is an error.
  static Result<PromptSource> load(const PromptConfig& config, const std::string& default_suffix,
                                   bool require_label, const TextModel& text);
  // The same for sft: nothing is encoded yet.
  static Result<PromptSource> load_demonstrations(const PromptConfig& config, const TextModel& text);

  int64_t rows() const { return static_cast<int64_t>(data_.rows.size()); }
  Prompt prompt(int64_t row) const;
  int64_t longest_prompt() const { return encoded_.longest_tokens; }
  // The answer is the row's last assistant turn, or its label column, whole. `text` of load must still be
  // there.
  Result<Demonstration> demonstration(int64_t row) const;
  // JSON object: hashes of the file and of the records, rows.
  std::string identity_json() const;

 private:
  PromptConfig config_;
  const TextModel* text_ = nullptr;
  data::PromptData data_;
  data::EncodedPrompts encoded_;
};

// One user message (with the chat template) or plain text, as PromptConfig says.
Result<Prompt> text_prompt(const std::string& prompt, const PromptConfig& config, const TextModel& text);

Result<data::PromptOrder> make_prompt_order(const std::string& data_order, bool shuffle, uint64_t seed,
                                            int64_t rows);

}  // namespace lockstep::loop
