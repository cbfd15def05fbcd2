// SPDX-License-Identifier: Apache-2.0
// Chat templates: the part of Jinja that templates of models use, rendered as transformers does (trim_blocks,
// lstrip_blocks, no trailing newline, break and continue, tojson without ASCII escapes, no undefined members
// of undefined). A statement, filter, test or method that is not known is refused with its line when the
// template is parsed. strftime_now is not defined: a prompt must not depend on the day it is made.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "data/value.h"

namespace lockstep::data {

class Tokenizer;
struct JinjaNode;

class ChatTemplate {
 public:
  static Result<ChatTemplate> parse(std::string_view text);
  // The tokenizer's template; its named special tokens (bos_token, ...) become variables. An error when the
  // tokenizer has none.
  static Result<ChatTemplate> of(const Tokenizer& tokenizer);

  // `messages`: a list of maps with role and content. `extra` adds variables (tools, enable_thinking, ...)
  // and overrides the rest. Errors name the template's file and line.
  Result<std::string> render(const Value& messages, bool add_generation_prompt,
                             const ValueMap& extra = {}) const;
  // With these variables and nothing else.
  Result<std::string> render_with(const ValueMap& variables) const;

 private:
  std::shared_ptr<const JinjaNode> root_;
  ValueMap defaults_;
  std::string file_;  // for errors; "": not from a file
};

}  // namespace lockstep::data
