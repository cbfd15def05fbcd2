// SPDX-License-Identifier: Apache-2.0
#include "data/chat.h"

#include <algorithm>
#include <map>

#include "data/utf8.h"

namespace lockstep::data {
namespace {

// A character that stands nowhere in the messages. kSafe puts it behind the first character of every text
// that would become a token, and twice before and after that text; renders; lets the tokenizer find the
// tokens of the template; and has the marks taken out again (Tokenizer::encode_marked).
Result<std::string> unused_mark(const std::string& messages_text) {
  for (char32_t code = 0x10FFFD; code > 0x10FF00; --code) {
    std::string mark;
    append_utf8(mark, code);
    if (messages_text.find(mark) == std::string::npos) return mark;
  }
  return invalid("the messages use all of the private characters that safe control tokens need");
}

Value mark_strings(const Tokenizer& tokenizer, const Value& value, bool special_only, std::string_view mark) {
  if (value.is_string()) {
    const std::string& text = value.as_string();
    std::map<size_t, int> marks;  // offset: how many
    for (const auto& [begin, end] : tokenizer.added_token_places(text, special_only)) {
      marks[begin] += 2;
      marks[begin + static_cast<size_t>(next_utf8(text, begin).length_bytes)] += 1;
      marks[end] += 2;
    }
    if (marks.empty()) return value;
    std::string out;
    size_t done = 0;
    for (const auto& [offset, count] : marks) {
      out.append(text, done, offset - done);
      for (int i = 0; i < count; ++i) out += mark;
      done = offset;
    }
    return Value::string(out.append(text, done));
  }
  if (value.is_list()) {
    Value::List items;
    for (const Value& item : value.as_list())
      items.push_back(mark_strings(tokenizer, item, special_only, mark));
    return Value::list(std::move(items));
  }
  if (value.is_map()) {
    ValueMap map;
    for (const auto& [key, item] : value.as_map().entries()) {
      map.set(key, mark_strings(tokenizer, item, special_only, mark));
    }
    return Value::map(std::move(map));
  }
  return value;
}

Status check_messages(const Value& messages) {
  if (!messages.is_list()) return invalid("messages are {}, not a list", messages.type());
  for (size_t i = 0; i < messages.as_list().size(); ++i) {
    if (!messages.as_list()[i].is_map()) {
      return invalid("message {} is {}, not an object with role and content", i,
                     messages.as_list()[i].type());
    }
  }
  return ok_status();
}

Result<std::vector<int32_t>> encode_safe(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                         const Value& messages, bool add_generation_prompt,
                                         const ValueMap& extra) {
  if (tokenizer.has_one_character_added_token()) {
    return invalid(
        "safe control tokens need added tokens of two characters or more; this tokenizer has one of one "
        "character: use the compatible mode");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string mark, unused_mark(to_compact_json(messages)));
  Value::List marked;
  for (const Value& message : messages.as_list()) {
    const Value* role = message.find("role");
    const bool assistant = role != nullptr && role->is_string() && role->as_string() == "assistant";
    marked.push_back(mark_strings(tokenizer, message, assistant, mark));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, chat_template.render(Value::list(std::move(marked)),
                                                                         add_generation_prompt, extra));
  return tokenizer.encode_marked(text, mark);
}

}  // namespace

Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                         const Value& messages, bool add_generation_prompt,
                                         ControlTokens mode, const ValueMap& extra) {
  LOCKSTEP_RETURN_IF_ERROR(check_messages(messages));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                            chat_template.render(messages, add_generation_prompt, extra));
  if (const auto byte = tokenizer.unencodable_byte(text)) {
    return invalid("the tokenizer has no token for the byte {:#04x} of a prompt", *byte);
  }
  if (mode == ControlTokens::kSafe) {
    return encode_safe(tokenizer, chat_template, messages, add_generation_prompt, extra);
  }
  return tokenizer.try_encode(text);
}

Result<EncodedConversation> encode_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                                const Value& messages, ControlTokens mode,
                                                const ValueMap& extra) {
  LOCKSTEP_RETURN_IF_ERROR(check_messages(messages));
  const Value::List& all = messages.as_list();
  const Value* role = all.empty() ? nullptr : all.back().find("role");
  if (role == nullptr || !role->is_string() || role->as_string() != "assistant") {
    return invalid("the conversation does not end with a message of the assistant");
  }
  const Value before = Value::list(Value::List(all.begin(), all.end() - 1));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                            encode_chat(tokenizer, chat_template, before, true, mode, extra));
  EncodedConversation result;
  LOCKSTEP_ASSIGN_OR_RETURN(result.ids, encode_chat(tokenizer, chat_template, messages, false, mode, extra));
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt.size() >= result.ids.size() || !std::equal(prompt.begin(), prompt.end(), result.ids.begin())) {
    return invalid(
        "the ids of the conversation do not begin with those of its prompt: the chat template rewrites "
        "earlier "
        "turns, or the answer joins the prompt's last token");
  }
  return result;
}

}  // namespace lockstep::data
