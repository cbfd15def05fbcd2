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
  LOCKSTEP_ASSIGN_OR_RETURN(ChatTemplate result, parse(tokenizer.chat_template()));
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
  return JinjaEvaluator(variables).render(*root_);
}

}  // namespace lockstep::data
