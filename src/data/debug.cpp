// SPDX-License-Identifier: Apache-2.0
#include "data/debug.h"

#include <functional>
#include <istream>
#include <iterator>
#include <ostream>

#include "data/chat.h"
#include "data/chat_template.h"
#include "data/jsonl.h"
#include "data/tokenizer.h"
#include "data/utf8.h"
#include "data/value.h"

namespace lockstep::data {
namespace {

using Answer = std::function<Result<Value>(const Value& question)>;

Value ids_value(const std::vector<int32_t>& ids) {
  Value::List items;
  items.reserve(ids.size());
  for (const int32_t id : ids) items.push_back(Value::integer(id));
  return Value::list(std::move(items));
}

Result<Value> answer_line(std::string_view line, const Answer& answer) {
  if (const auto bad = find_invalid_utf8(line)) return invalid("byte {} of the line is no UTF-8", *bad + 1);
  LOCKSTEP_ASSIGN_OR_RETURN(const Value question, parse_json(line));
  if (!question.is_map()) return invalid("the line is {}, not a JSON object", question.type());
  return answer(question);
}

Result<int64_t> answer_all(std::istream& in, std::ostream& out, const Answer& answer) {
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  int64_t bad_lines = 0;
  LOCKSTEP_RETURN_IF_ERROR(for_each_line(text, [&](int64_t number, std::string_view line) {
    Result<Value> result = answer_line(line, answer);
    if (!result.ok()) {
      ++bad_lines;
      ValueMap error;
      error.set("error", Value::string(result.status().message()));
      error.set("line", Value::integer(number));
      result = Value::map(std::move(error));
    }
    out << to_compact_json(result.value()) << '\n';
    return ok_status();
  }));
  out.flush();
  if (!out) return stopped("writing the answers failed; is the disk full or the pipe closed?");
  return bad_lines;
}

// The boolean of an optional key; false without it.
Result<bool> optional_flag(const Value& question, const char* key) {
  const Value* value = question.find(key);
  if (value == nullptr) return false;
  if (!value->is_bool()) return invalid("{} is {}, not true or false", key, value->type());
  return value->as_bool();
}

Status check_tokenize_keys(const Value& question) {
  if (question.find("text") == nullptr && question.find("ids") == nullptr)
    return invalid("the line has neither \"text\" nor \"ids\"");
  for (const auto& [key, value] : question.as_map().entries()) {
    if (key != "text" && key != "ids" && key != "add_special_tokens") {
      return invalid("unknown key {}; a line has text (and add_special_tokens) or ids",
                     to_json(Value::string(key)));
    }
  }
  if (question.find("ids") == nullptr) return ok_status();
  if (question.find("text") != nullptr) return invalid("the line has both \"text\" and \"ids\"; give one");
  if (question.find("add_special_tokens") == nullptr) return ok_status();
  return invalid("add_special_tokens is for \"text\", not for \"ids\"");
}

Result<Value> tokenize(const Tokenizer& tokenizer, const Value& question) {
  LOCKSTEP_RETURN_IF_ERROR(check_tokenize_keys(question));
  ValueMap answer;
  if (const Value* text = question.find("text"); text != nullptr) {
    if (!text->is_string()) return invalid("text is {}, not a text", text->type());
    LOCKSTEP_ASSIGN_OR_RETURN(const bool special, optional_flag(question, "add_special_tokens"));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              special ? tokenizer.encode_with_post_processor(text->as_string())
                                      : tokenizer.try_encode(text->as_string()));
    answer.set("ids", ids_value(ids));
    return Value::map(std::move(answer));
  }
  const Value* given = question.find("ids");
  if (!given->is_list()) return invalid("ids is {}, not a list", given->type());
  std::vector<int32_t> ids;
  for (const Value& id : given->as_list()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX ||
        !tokenizer.is_known(static_cast<int32_t>(id.as_int()))) {
      return invalid("{} is no token id; known ids are below {}", to_json(id), tokenizer.token_limit());
    }
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  answer.set("text", Value::string(tokenizer.decode_text(ids)));
  return Value::map(std::move(answer));
}

Result<Value> render(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const Value& question) {
  const Value* messages = question.find("messages");
  if (messages == nullptr || !messages->is_list()) return invalid("the line has no list \"messages\"");
  ValueMap extra;
  for (const auto& [key, value] : question.as_map().entries()) {
    if (key != "messages" && key != "add_generation_prompt" && key != "control_tokens") extra.set(key, value);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const bool add_generation_prompt,
                            optional_flag(question, "add_generation_prompt"));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string text, chat_template.render(*messages, add_generation_prompt, extra));
  ValueMap answer;
  answer.set("text", Value::string(std::move(text)));
  if (const Value* mode = question.find("control_tokens"); mode != nullptr) {
    const std::string name = to_str(*mode);
    if (name != "safe" && name != "compatible") return invalid("control_tokens is safe or compatible");
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::vector<int32_t> ids,
        encode_chat(tokenizer, chat_template, *messages, add_generation_prompt,
                    name == "safe" ? ControlTokens::kSafe : ControlTokens::kCompatible, extra));
    answer.set("ids", ids_value(ids));
  }
  return Value::map(std::move(answer));
}

}  // namespace

Result<int64_t> debug_tokenize(const std::string& folder, std::istream& in, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(folder));
  return answer_all(in, out, [&](const Value& question) { return tokenize(tokenizer, question); });
}

Result<int64_t> debug_template(const std::string& folder, std::istream& in, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::of(tokenizer));
  return answer_all(in, out,
                    [&](const Value& question) { return render(tokenizer, chat_template, question); });
}

}  // namespace lockstep::data
