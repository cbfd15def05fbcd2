// SPDX-License-Identifier: Apache-2.0
#include "data/chat_template.h"

#include "data/jinja_ast.h"
#include "data/jinja_evaluator.h"
#include "data/tokenizer.h"

namespace lockstep::data {

Result<ChatTemplate> ChatTemplate::parse(std::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(JinjaNodePtr root, parse_jinja(text));
  ChatTemplate result;
  result.root_ = std::move(root);
  return result;
}

Result<ChatTemplate> ChatTemplate::of(const Tokenizer& tokenizer) {
  if (tokenizer.chat_template().empty()) {
    return invalid(
        "the tokenizer has no chat template; add one to tokenizer_config.json or run without "
        "--apply-chat-template");
  }
  Result<ChatTemplate> parsed = parse(tokenizer.chat_template());
  if (!parsed.ok()) return parsed.status().with_context(tokenizer.chat_template_file());
  ChatTemplate result = std::move(parsed).value();
  result.file_ = tokenizer.chat_template_file();
  for (const auto& [name, text] : tokenizer.special_tokens()) result.defaults_.set(name, Value::string(text));
  return result;
}

Result<std::string> ChatTemplate::render(const Value& messages, bool add_generation_prompt,
                                         const ValueMap& extra) const {
  ValueMap variables = defaults_;
  variables.set("messages", messages);
  variables.set("tools", Value::none());
  variables.set("documents", Value::none());
  variables.set("add_generation_prompt", Value::boolean(add_generation_prompt));
  for (const auto& [name, value] : extra.entries()) variables.set(name, value);
  return render_with(variables);
}

Result<std::string> ChatTemplate::render_with(const ValueMap& variables) const {
  Result<std::string> text = JinjaEvaluator(variables).render(*root_);
  if (!text.ok() && !file_.empty()) return text.status().with_context(file_);
  return text;
}

}  // namespace lockstep::data
