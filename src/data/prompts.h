// SPDX-License-Identifier: Apache-2.0
// Prompt data: rows with a prompt (a conversation or plain text) and a label.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "data/chat.h"
#include "data/chat_template.h"
#include "data/tokenizer.h"
#include "data/value.h"

namespace lockstep::data {

struct PromptDataOptions {
  std::string path;  // a .jsonl file, or part of it: path@[a:b]
  // "": the first of messages, prompt, question that the first row has.
  std::string input_key;
  // "": label if the first row has it, else answer (with the input key question), else no label.
  std::string label_key;
  bool require_label = false;
  // A prompt that is a text becomes one user message; without it a conversation is refused.
  bool apply_chat_template = false;
  // Appended to a text prompt, or to the last user message of a conversation.
  std::optional<std::string> prompt_suffix;
  // What takes its place when it is not given and the input key is question (GSM8K's columns).
  std::string gsm8k_suffix;
};

struct PromptRow {
  int64_t line = 0;  // of the file, from 1
  int64_t row = 0;   // record of the file, from 0
  bool is_chat = false;
  Value messages;      // is_chat: a list of maps with role and content
  std::string prompt;  // not is_chat: the text
  std::string label;   // "" without a label
  bool has_label = false;
  std::string columns_json;  // the row as compact JSON, keys in the file's order
};

struct PromptData {
  std::string path;
  std::string input_key;  // the ones used
  std::string label_key;  // "": none
  bool apply_chat_template = false;
  std::string file_sha256;     // of the whole file
  std::string records_sha256;  // of the rows as used: see docs/data.md
  int64_t records_in_file = 0;
  std::vector<PromptRow> rows;  // in file order, at least one
};

// Errors name file, line, wanted and found columns.
Result<PromptData> load_prompts(const PromptDataOptions& options);

// What to do with a prompt of more than max_prompt_tokens. Nothing ever cuts a prompt.
enum class LongPrompts { kError, kDrop };

struct EncodePromptsOptions {
  ControlTokens control_tokens = ControlTokens::kCompatible;
  int64_t max_prompt_tokens = 0;  // 0: no limit
  LongPrompts long_prompts = LongPrompts::kError;
  ValueMap template_variables;  // enable_thinking, tools, ...
};

struct EncodedPrompts {
  std::vector<std::vector<int32_t>> ids;  // of the rows that are kept, in order
  std::vector<int64_t> rows;              // their index in PromptData::rows
  int64_t dropped = 0;
  int64_t longest_tokens = 0;  // among those kept
};

// Chats end with the generation prompt; text prompts are encoded as they are, with nothing added. Errors: the
// template's (with file:line), a prompt without a token, a prompt that is too long (kError), none left
// (kDrop).
Result<EncodedPrompts> encode_prompts(const PromptData& data, const Tokenizer& tokenizer,
                                      const EncodePromptsOptions& options = {});

}  // namespace lockstep::data
