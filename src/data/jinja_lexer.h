// SPDX-License-Identifier: Apache-2.0
// Chat templates, first stage: text to tokens, with the white-space rules transformers sets (trim_blocks,
// lstrip_blocks, no trailing newline) and the signs - and + at tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lockstep::data {

struct JinjaToken {
  enum class Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInt,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // data, name, operator, or the content of a string
  int line = 0;      // from 1
  int64_t int_value = 0;
  double float_value = 0;

  bool is(Kind wanted, std::string_view wanted_text) const { return kind == wanted && text == wanted_text; }
  bool is_operator(std::string_view wanted) const { return is(Kind::kOperator, wanted); }
  bool is_name(std::string_view wanted) const { return is(Kind::kName, wanted); }
};

// The last token is kEnd. Errors name the line.
Result<std::vector<JinjaToken>> lex_jinja(std::string_view source);

}  // namespace lockstep::data
