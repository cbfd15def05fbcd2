// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.h"

#include <gtest/gtest.h>

#include "data/data_test_support.h"
#include "data/jsonl.h"

namespace lockstep::data {
namespace {

using testing::large_test_data;

PromptDataOptions options_for(const std::string& text) {
  PromptDataOptions options;
  options.path = write_temporary("prompts.jsonl", text);
  return options;
}

std::string error_of(const PromptDataOptions& options) {
  const auto data = load_prompts(options);
  if (data.ok()) return "no error";
  const std::string& message = data.status().message();
  const size_t at = message.find(".jsonl");
  return at == std::string::npos ? message : message.substr(at + 6);
}

TEST(Prompts, Gsm8kColumns) {
  PromptDataOptions options;
  options.path = large_test_data("gsm8k/train.jsonl") + "@[0:100]";
  options.apply_chat_template = true;
  options.gsm8k_suffix = "\nThink.";
  const PromptData data = load_prompts(options).value();
  EXPECT_EQ(data.input_key, "question");
  EXPECT_EQ(data.label_key, "answer");
  EXPECT_EQ(data.rows.size(), 100U);
  EXPECT_EQ(data.records_in_file, 7473);
  EXPECT_EQ(data.rows[0].label, "72");
  ASSERT_EQ(data.rows[0].messages.as_list().size(), 1U);
  const std::string& content = data.rows[0].messages.as_list()[0].find("content")->as_string();
  EXPECT_EQ(content.substr(content.size() - 19), "ril and May?\nThink.");
  // Another suffix is other data; another file name is not.
  options.prompt_suffix = "";
  EXPECT_NE(load_prompts(options).value().records_sha256, data.records_sha256);
  EXPECT_EQ(load_prompts(options).value().file_sha256, data.file_sha256);
}

// Case M06's file facts, as far as labels are text.
TEST(Prompts, LabelsOfGsm8k) {
  PromptDataOptions options;
  options.path = large_test_data("gsm8k/train.jsonl");
  const PromptData train = load_prompts(options).value();
  int64_t commas = 0;
  for (const PromptRow& row : train.rows) commas += row.label.find(',') != std::string::npos ? 1 : 0;
  EXPECT_EQ(commas, 79);
  EXPECT_EQ(train.rows[5715].label, "-7");
  EXPECT_EQ(train.rows[6189].label, "-12");
  EXPECT_EQ(train.rows[5715].row, 5715);
  EXPECT_EQ(train.rows[5715].line, 5716);
}

TEST(Prompts, MessagesAndPrompt) {
  PromptDataOptions options = options_for(
      "{\"prompt\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"label\":7}\n"
      "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}],"
      "\"label\":\"a\"}\n");
  EXPECT_EQ(error_of(options), ":1: column 'messages' is a conversation; add --apply-chat-template");
  options.apply_chat_template = true;
  options.prompt_suffix = "!";
  const PromptData data = load_prompts(options).value();
  EXPECT_EQ(to_compact_json(data.rows[0].messages), R"([{"role":"user","content":"hi!"}])");
  EXPECT_EQ(to_compact_json(data.rows[1].messages),
            R"([{"role":"system","content":"s"},{"role":"user","content":"u!"}])");
  EXPECT_EQ(data.rows[0].label, "7");
  EXPECT_EQ(data.rows[1].label, "a");

  options = options_for("{\"prompt\":\"raw\"}\n");
  const PromptData text = load_prompts(options).value();
  EXPECT_EQ(text.rows[0].prompt, "raw");
  EXPECT_FALSE(text.rows[0].has_label);
  options.apply_chat_template = true;
  EXPECT_EQ(to_compact_json(load_prompts(options).value().rows[0].messages),
            R"([{"role":"user","content":"raw"}])");
  options.require_label = true;
  EXPECT_EQ(error_of(options).substr(0, 31), ":1: no column for the label: wa");
}

// Case I07.
TEST(Prompts, MissingColumnsAreNamed) {
  PromptDataOptions options;
  options.path = large_test_data("gsm8k/test.jsonl");
  options.input_key = "quesion";
  EXPECT_EQ(
      error_of(options),
      ":1: row 0 has no column 'quesion' (nearest: 'question'); found question, answer; name the column "
      "with --input-key");
  options.require_label = true;  // which column the label is depends on the prompt's
  EXPECT_NE(error_of(options).find("no column 'quesion' (nearest: 'question')"), std::string::npos)
      << error_of(options);
  options.require_label = false;
  options.input_key = "question";
  options.label_key = "label";
  EXPECT_EQ(error_of(options),
            ":1: row 0 has no column 'label'; found question, answer; name the column with --label-key");
  options.label_key = "";
  EXPECT_EQ(error_of(options), "no error");

  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"question\":\"q\",\"answer\":\"#### 1\"}\n";
  text += "{\"ask\":\"q\",\"answer\":\"#### 1\"}\n";
  EXPECT_EQ(error_of(options_for(text)),
            ":101: row 100 has no column 'question'; found ask, answer; name the column with --input-key");
  EXPECT_EQ(error_of(options_for("{\"text\":\"q\"}\n")),
            ":1: no column for the prompt: wanted messages, prompt or question, found text; name it with "
            "--input-key");
  EXPECT_EQ(error_of(options_for("[1]\n")), ":1: the line is list, not a JSON object");
  EXPECT_EQ(error_of(options_for("{\"prompt\":null}\n")).substr(0, 40),
            ":1: row 0 has null in column 'prompt'; f");
  EXPECT_EQ(error_of(options_for("{\"prompt\":5}\n")),
            ":1: column 'prompt' is int; a prompt is a text or a list of messages");
}

// Case I09: the default refuses, dropping counts and keeps the order; nothing is cut.
TEST(Prompts, LongPrompts) {
  std::string text;
  for (const int tokens : {63, 500, 64, 65, 1}) {
    std::string prompt;
    for (int i = 0; i < tokens; ++i) prompt += " hello";
    text += "{\"prompt\":\"" + prompt + "\"}\n";
  }
  const PromptData data = load_prompts(options_for(text)).value();
  EncodePromptsOptions options;
  const EncodedPrompts all = encode_prompts(data, qwen(), options).value();
  EXPECT_EQ(all.longest_tokens, 500);
  options.max_prompt_tokens = 64;
  const auto refused = encode_prompts(data, qwen(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(
      refused.status().message().find(":2: the prompt has 500 tokens, more than --rollout-max-prompt-len 64"),
      std::string::npos)
      << refused.status().message();
  options.long_prompts = LongPrompts::kDrop;
  const EncodedPrompts kept = encode_prompts(data, qwen(), options).value();
  EXPECT_EQ(kept.rows, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(kept.dropped, 2);
  EXPECT_EQ(kept.longest_tokens, 64);
  EXPECT_EQ(kept.ids[1], all.ids[2]);
  options.max_prompt_tokens = 500;
  EXPECT_EQ(encode_prompts(data, qwen(), options).value().dropped, 0);
  // Case P07: nothing left is no success.
  const PromptData one = load_prompts(options_for("{\"prompt\":\"a b c\"}\n")).value();
  options.max_prompt_tokens = 1;
  EXPECT_FALSE(encode_prompts(one, qwen(), options).ok());
  const PromptData empty = load_prompts(options_for("{\"prompt\":\"\"}\n")).value();
  EXPECT_FALSE(encode_prompts(empty, qwen(), {}).ok());
}

TEST(Prompts, TemplateErrorsNameTheRow) {
  PromptDataOptions options = options_for("\n{\"messages\":[{\"role\":\"user\",\"content\":null}]}\n");
  options.apply_chat_template = true;
  const PromptData data = load_prompts(options).value();
  const auto encoded = encode_prompts(data, qwen(), {});
  ASSERT_FALSE(encoded.ok());
  EXPECT_NE(encoded.status().message().find(".jsonl:2: "), std::string::npos) << encoded.status().message();
  EXPECT_NE(encoded.status().message().find("qwen2.5-tokenizer/tokenizer_config.json: chat template line "),
            std::string::npos)
      << encoded.status().message();
}

}  // namespace
}  // namespace lockstep::data
