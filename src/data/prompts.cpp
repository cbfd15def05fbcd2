// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.h"

#include <algorithm>

#include "core/sha256.h"
#include "core/suggest.h"
#include "data/jsonl.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

std::string columns_of(const Value& row) {
  std::string names;
  for (const auto& entry : row.as_map().entries()) {
    if (!names.empty()) names += ", ";
    names += entry.first;
  }
  return names.empty() ? "none" : names;
}

class RowReader {
 public:
  RowReader(const PromptDataOptions& options, const std::string& path) : options_(options), path_(path) {}

  // Settles the keys by the first row.
  Status choose_keys(const JsonRecord& first) {
    LOCKSTEP_RETURN_IF_ERROR(check_object(first));
    input_key = options_.input_key;
    if (input_key.empty()) {
      for (const char* candidate : {"messages", "prompt", "question"}) {
        if (input_key.empty() && first.value.find(candidate) != nullptr) input_key = candidate;
      }
      if (input_key.empty()) {
        return invalid(
            "{}:{}: no column for the prompt: wanted messages, prompt or question, found {}; name it with "
            "--input-key",
            path_, first.line, columns_of(first.value));
      }
    } else {
      // Before the label: which one is meant depends on this key.
      LOCKSTEP_RETURN_IF_ERROR(column(first, input_key, "--input-key").status());
    }
    label_key = options_.label_key;
    if (label_key.empty()) {
      if (first.value.find("label") != nullptr) {
        label_key = "label";
      } else if (input_key == "question" && first.value.find("answer") != nullptr) {
        label_key = "answer";
      } else if (options_.require_label) {
        return invalid(
            "{}:{}: no column for the label: wanted label (or question and answer), found {}; name it with "
            "--label-key",
            path_, first.line, columns_of(first.value));
      }
    }
    return ok_status();
  }

  Result<PromptRow> read(const JsonRecord& record) {
    LOCKSTEP_RETURN_IF_ERROR(check_object(record));
    PromptRow row;
    row.line = record.line;
    row.row = record.row;
    row.columns_json = to_compact_json(record.value);
    LOCKSTEP_ASSIGN_OR_RETURN(const Value* input, column(record, input_key, "--input-key"));
    LOCKSTEP_RETURN_IF_ERROR(read_prompt(record, *input, row));
    if (!label_key.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const Value* label, column(record, label_key, "--label-key"));
      LOCKSTEP_RETURN_IF_ERROR(read_label(record, *label, row));
    }
    return row;
  }

  std::string input_key;
  std::string label_key;

 private:
  Status check_object(const JsonRecord& record) const {
    if (record.value.is_map()) return ok_status();
    return invalid("{}:{}: the line is {}, not a JSON object", path_, record.line, record.value.type());
  }

  Result<const Value*> column(const JsonRecord& record, const std::string& key, const char* option) const {
    const Value* found = record.value.find(key);
    if (found != nullptr && !found->is_none()) return found;
    std::vector<std::string> names;
    for (const auto& entry : record.value.as_map().entries()) names.push_back(entry.first);
    const std::string near = nearest_name(key, names);
    return invalid("{}:{}: row {} has {} column '{}'{}; found {}; name the column with {}", path_,
                   record.line, record.row, found == nullptr ? "no" : "null in", key,
                   near.empty() || near == key ? "" : " (nearest: '" + near + "')", columns_of(record.value),
                   option);
  }

  std::string suffix() const {
    if (options_.prompt_suffix) return *options_.prompt_suffix;
    return input_key == "question" ? options_.gsm8k_suffix : std::string();
  }

  Status read_prompt(const JsonRecord& record, const Value& input, PromptRow& row) const {
    row.is_chat = options_.apply_chat_template;
    if (input.is_string()) {
      const std::string text = input.as_string() + suffix();
      if (row.is_chat) {
        row.messages = Value::list({make_message("user", text)});
      } else {
        row.prompt = text;
      }
      return ok_status();
    }
    if (!input.is_list()) {
      return invalid("{}:{}: column '{}' is {}; a prompt is a text or a list of messages", path_, record.line,
                     input_key, input.type());
    }
    if (!options_.apply_chat_template) {
      return invalid("{}:{}: column '{}' is a conversation; add --apply-chat-template", path_, record.line,
                     input_key);
    }
    return read_messages(record, input.as_list(), row);
  }

  Status read_messages(const JsonRecord& record, const Value::List& input, PromptRow& row) const {
    Value::List messages = input;
    int64_t last_user = -1;
    for (size_t i = 0; i < messages.size(); ++i) {
      const Value* role = messages[i].find("role");
      if (role == nullptr || !role->is_string()) {
        return invalid("{}:{}: message {} of '{}' has no role (a text)", path_, record.line, i, input_key);
      }
      if (messages[i].find("content") == nullptr && messages[i].find("tool_calls") == nullptr) {
        return invalid("{}:{}: message {} of '{}' has no content", path_, record.line, i, input_key);
      }
      if (role->as_string() == "user") last_user = static_cast<int64_t>(i);
    }
    if (messages.empty()) return invalid("{}:{}: '{}' is an empty list", path_, record.line, input_key);
    const std::string suffix_text = suffix();
    if (!suffix_text.empty()) {
      const Value* content =
          last_user < 0 ? nullptr : messages[static_cast<size_t>(last_user)].find("content");
      if (content == nullptr || !content->is_string()) {
        return invalid("{}:{}: --prompt-suffix needs a user message whose content is a text", path_,
                       record.line);
      }
      ValueMap message = messages[static_cast<size_t>(last_user)].as_map();
      message.set("content", Value::string(content->as_string() + suffix_text));
      messages[static_cast<size_t>(last_user)] = Value::map(std::move(message));
    }
    row.messages = Value::list(std::move(messages));
    return ok_status();
  }

  // GSM8K's answer is a worked solution; its label is what follows the last ####.
  Status read_label(const JsonRecord& record, const Value& label, PromptRow& row) const {
    row.has_label = true;
    if (!label.is_string()) {
      if (!label.is_int() && !label.is_float() && !label.is_bool() && !label.is_list() && !label.is_map()) {
        return invalid("{}:{}: column '{}' is {}", path_, record.line, label_key, label.type());
      }
      row.label = to_json(label);
      return ok_status();
    }
    row.label = label.as_string();
    const size_t mark = row.label.rfind("####");
    if (input_key == "question" && label_key == "answer" && mark != std::string::npos) {
      row.label = std::string(strip(std::string_view(row.label).substr(mark + 4), true, true));
      if (row.label.empty()) {
        return invalid("{}:{}: column 'answer' has nothing after its last ####", path_, record.line);
      }
    }
    return ok_status();
  }

  const PromptDataOptions& options_;
  const std::string& path_;
};

// SHA-256 over, for each row, the SHA-256 of [prompt, label] as compact JSON and a newline.
std::string hash_of(const std::vector<PromptRow>& rows) {
  Sha256 hash;
  for (const PromptRow& row : rows) {
    const Value prompt = row.is_chat ? row.messages : Value::string(row.prompt);
    const Value label = row.has_label ? Value::string(row.label) : Value::none();
    hash.update(sha256_hex(to_compact_json(Value::list({prompt, label}))));
    hash.update("\n");
  }
  return hash.hex();
}

}  // namespace

Result<PromptData> load_prompts(const PromptDataOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonlFile file, read_jsonl(options.path));
  RowReader reader(options, file.path);
  LOCKSTEP_RETURN_IF_ERROR(reader.choose_keys(file.records.front()));
  PromptData data;
  for (const JsonRecord& record : file.records) {
    LOCKSTEP_ASSIGN_OR_RETURN(PromptRow row, reader.read(record));
    data.rows.push_back(std::move(row));
  }
  data.path = file.path;
  data.input_key = reader.input_key;
  data.label_key = reader.label_key;
  data.apply_chat_template = options.apply_chat_template;
  data.file_sha256 = file.sha256;
  data.records_sha256 = hash_of(data.rows);
  data.records_in_file = file.records_in_file;
  return data;
}

Result<EncodedPrompts> encode_prompts(const PromptData& data, const Tokenizer& tokenizer,
                                      const EncodePromptsOptions& options) {
  std::optional<ChatTemplate> chat_template;
  if (data.apply_chat_template) {
    LOCKSTEP_ASSIGN_OR_RETURN(chat_template, ChatTemplate::of(tokenizer));
  }
  EncodedPrompts result;
  for (size_t i = 0; i < data.rows.size(); ++i) {
    const PromptRow& row = data.rows[i];
    Result<std::vector<int32_t>> ids = invalid("");
    if (row.is_chat) {
      ids = encode_chat(tokenizer, *chat_template, row.messages, true, options.control_tokens,
                        options.template_variables);
    } else if (const auto byte = tokenizer.unencodable_byte(row.prompt)) {
      ids = invalid("the tokenizer has no token for the byte {:#04x} of the prompt", *byte);
    } else {
      ids = tokenizer.try_encode(row.prompt);
    }
    if (!ids.ok()) return ids.status().with_context(fmt::format("{}:{}", data.path, row.line));
    const auto tokens = static_cast<int64_t>(ids.value().size());
    if (tokens == 0) return invalid("{}:{}: the prompt has no token", data.path, row.line);
    if (options.max_prompt_tokens > 0 && tokens > options.max_prompt_tokens) {
      if (options.long_prompts == LongPrompts::kError) {
        return invalid(
            "{}:{}: the prompt has {} tokens, more than --rollout-max-prompt-len {}; raise it or drop the "
            "row",
            data.path, row.line, tokens, options.max_prompt_tokens);
      }
      ++result.dropped;
      continue;
    }
    result.longest_tokens = std::max(result.longest_tokens, tokens);
    result.ids.push_back(std::move(ids).value());
    result.rows.push_back(static_cast<int64_t>(i));
  }
  if (result.ids.empty()) {
    return invalid("{}: all {} prompts are longer than --rollout-max-prompt-len {}", data.path,
                   result.dropped, options.max_prompt_tokens);
  }
  return result;
}

}  // namespace lockstep::data
