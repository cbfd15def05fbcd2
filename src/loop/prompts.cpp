// SPDX-License-Identifier: Apache-2.0
#include "loop/prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/file.h"
#include "core/sha256.h"
#include "data/chat.h"
#include "data/value.h"
#include "ledger/json_text.h"

namespace lockstep::loop {
namespace {

constexpr const char* kGenerationConfig = "generation_config.json";

void add_unique(int32_t id, std::vector<int32_t>* ids) {
  if (std::find(ids->begin(), ids->end(), id) == ids->end()) ids->push_back(id);
}

// eos_token_id of generation_config.json: an id or a list; none when the file or the key is missing.
Result<std::vector<int32_t>> generation_end_ids(const std::string& folder, int64_t vocab) {
  const std::string path = join_path(folder, kGenerationConfig);
  std::vector<int32_t> ids;
  if (!path_exists(path)) return ids;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const Result<data::Value> json = data::parse_json(text);
  if (!json.ok()) return json.status().with_context(path);
  const data::Value* eos = json.value().find("eos_token_id");
  if (eos == nullptr || eos->is_none()) return ids;
  const data::Value::List list = eos->is_list() ? eos->as_list() : data::Value::List{*eos};
  for (const data::Value& id : list) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= vocab) {
      return invalid("{}: eos_token_id {} is not an id below vocab_size {}", path, data::to_json(id), vocab);
    }
    add_unique(static_cast<int32_t>(id.as_int()), &ids);
  }
  return ids;
}

std::string hash_of_files(const std::string& folder) {
  std::string text;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    const Result<std::string> bytes = read_file(join_path(folder, name));
    text += fmt::format("{} {}\n", name, bytes.ok() ? sha256_hex(bytes.value()) : "-");
  }
  return sha256_hex(text);
}

data::ControlTokens control_tokens(const PromptConfig& config) {
  return config.safe_control_tokens ? data::ControlTokens::kSafe : data::ControlTokens::kCompatible;
}

data::PromptDataOptions data_options(const PromptConfig& config, const std::string& default_suffix) {
  data::PromptDataOptions options;
  options.path = config.path;
  options.input_key = config.input_key;
  options.label_key = config.label_key;
  options.apply_chat_template = config.apply_chat_template;
  options.prompt_suffix = config.prompt_suffix;
  if (!default_suffix.empty()) options.gsm8k_suffix = "\n" + default_suffix;
  return options;
}

}  // namespace

Result<TextModel> load_text_model(const std::string& folder, const std::vector<int32_t>& config_eos,
                                  int64_t vocab) {
  LOCKSTEP_ASSIGN_OR_RETURN(data::Tokenizer tokenizer, data::Tokenizer::load(folder));
  TextModel text{std::move(tokenizer), {}, "", hash_of_files(folder)};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int32_t> generation, generation_end_ids(folder, vocab));
  std::vector<std::string> sources;
  const auto take = [&](const std::vector<int32_t>& ids, const char* source) {
    for (const int32_t id : ids) add_unique(id, &text.end_ids);
    if (!ids.empty()) sources.push_back(fmt::format("{} {}", source, fmt::join(ids, " ")));
  };
  take(generation, kGenerationConfig);
  if (generation.empty()) take(config_eos, "config.json");
  if (const auto eos = text.tokenizer.eos_token_id()) take({*eos}, "tokenizer_config.json");
  if (text.end_ids.empty()) {
    return invalid(
        "{}: no end token in generation_config.json, config.json or tokenizer_config.json; generation would "
        "never "
        "stop: add eos_token_id to {}",
        folder, kGenerationConfig);
  }
  text.end_source = fmt::format("{}", fmt::join(sources, ", "));
  if (text.tokenizer.token_limit() > vocab) {
    return invalid("{}: the tokenizer has ids up to {}, the model's vocab_size is {}", folder,
                   text.tokenizer.token_limit() - 1, vocab);
  }
  return text;
}

Result<PromptSource> PromptSource::load(const PromptConfig& config, const std::string& default_suffix,
                                        bool require_label, const TextModel& text) {
  PromptSource source;
  source.config_ = config;
  source.text_ = &text;
  data::PromptDataOptions options = data_options(config, default_suffix);
  options.require_label = require_label;
  LOCKSTEP_ASSIGN_OR_RETURN(source.data_, data::load_prompts(options));
  data::EncodePromptsOptions encode;
  encode.control_tokens = control_tokens(config);
  encode.max_prompt_tokens = config.max_prompt_len;
  LOCKSTEP_ASSIGN_OR_RETURN(source.encoded_, data::encode_prompts(source.data_, text.tokenizer, encode));
  return source;
}

Result<PromptSource> PromptSource::load_demonstrations(const PromptConfig& config, const TextModel& text) {
  PromptSource source;
  source.config_ = config;
  source.text_ = &text;
  LOCKSTEP_ASSIGN_OR_RETURN(source.data_, data::load_prompts(data_options(config, "")));
  return source;
}

Prompt PromptSource::prompt(int64_t row) const {
  const size_t i = static_cast<size_t>(row);
  return {encoded_.ids[i], data_.rows[i].label};
}

Result<Demonstration> PromptSource::demonstration(int64_t index) const {
  const data::PromptRow& row = data_.rows[static_cast<size_t>(index)];
  const std::string place = fmt::format("{}:{}", data_.path, row.line);
  Demonstration out;
  std::optional<data::ChatTemplate> chat_template;
  if (row.is_chat) {
    LOCKSTEP_ASSIGN_OR_RETURN(chat_template, data::ChatTemplate::of(text_->tokenizer));
    const data::Value::List& messages = row.messages.as_list();
    const data::Value* role = messages.back().find("role");
    if (role != nullptr && role->is_string() && role->as_string() == "assistant") {
      const auto whole =
          data::encode_conversation(text_->tokenizer, *chat_template, row.messages, control_tokens(config_));
      if (!whole.ok()) return whole.status().with_context(place);
      const auto cut = whole.value().ids.begin() + whole.value().prompt_tokens;
      out.prompt_ids.assign(whole.value().ids.begin(), cut);
      out.response_ids.assign(cut, whole.value().ids.end());
      // What a template writes behind the end token (a line feed) is not part of an answer.
      const auto& ends = text_->end_ids;
      const auto last = std::find_if(out.response_ids.rbegin(), out.response_ids.rend(), [&](int32_t id) {
        return std::find(ends.begin(), ends.end(), id) != ends.end();
      });
      out.response_ids.erase(last.base(), out.response_ids.end());
      if (out.response_ids.empty())
        return invalid("{}: the last turn has no end token in this template", place);
      return out;
    }
    const auto ids =
        data::encode_chat(text_->tokenizer, *chat_template, row.messages, true, control_tokens(config_));
    if (!ids.ok()) return ids.status().with_context(place);
    out.prompt_ids = ids.value();
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(out.prompt_ids, text_->tokenizer.try_encode(row.prompt));
  }
  if (!row.has_label) {
    return invalid(
        "{}: the row has no answer to learn: give messages that end with an assistant turn, or --label-key",
        place);
  }
  const Result<data::Value> columns = data::parse_json(row.columns_json);
  const data::Value* answer = columns.ok() ? columns.value().find(data_.label_key) : nullptr;
  const std::string answer_text = answer != nullptr && answer->is_string() ? answer->as_string() : row.label;
  LOCKSTEP_ASSIGN_OR_RETURN(out.response_ids, text_->tokenizer.try_encode(answer_text, false));
  out.response_ids.push_back(text_->tokenizer.eos_token_id().value_or(text_->end_ids[0]));
  if (out.prompt_ids.empty()) return invalid("{}: the prompt has no token", place);
  return out;
}

std::string PromptSource::identity_json() const {
  return ledger::JsonObject()
      .add("file_sha256", data_.file_sha256)
      .add("records_sha256", data_.records_sha256)
      .add("rows", rows())
      .text();
}

Result<Prompt> text_prompt(const std::string& prompt, const PromptConfig& config, const TextModel& text) {
  const std::string whole = prompt + config.prompt_suffix.value_or("");
  Prompt out;
  if (config.apply_chat_template) {
    LOCKSTEP_ASSIGN_OR_RETURN(const data::ChatTemplate chat_template, data::ChatTemplate::of(text.tokenizer));
    const data::Value messages = data::Value::list({data::make_message("user", whole)});
    LOCKSTEP_ASSIGN_OR_RETURN(
        out.ids, data::encode_chat(text.tokenizer, chat_template, messages, true, control_tokens(config)));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(out.ids, text.tokenizer.encode_with_post_processor(whole));
  }
  if (out.ids.empty()) return invalid("--prompt: the text has no token");
  return out;
}

Result<data::PromptOrder> make_prompt_order(const std::string& data_order, bool shuffle, uint64_t seed,
                                            int64_t rows) {
  LOCKSTEP_ASSIGN_OR_RETURN(const data::OrderKind kind, data::order_kind(shuffle, data_order));
  return data::PromptOrder(kind, seed, rows);
}

}  // namespace lockstep::loop
