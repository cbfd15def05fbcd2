// SPDX-License-Identifier: Apache-2.0
// A template, then optionally a zero byte and the JSON object of its variables.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "data/chat_template.h"
#include "data/utf8.h"
#include "data/value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const auto chat_template = ChatTemplate::parse(input.substr(0, zero));
  if (!chat_template.ok()) return 0;
  ValueMap variables;
  variables.set("messages",
                Value::list({make_message("user", " hi\n"), make_message("assistant", "<t>x</t> y")}));
  variables.set("n", Value::integer(3));
  variables.set("s", Value::string("a\xC3\xA9 b"));
  variables.set("m", parse_json("{\"a\":[1,2.5,null,true],\"b\":{\"c\":\"d\"}}").value());
  if (zero < input.size()) {
    const auto given = parse_json(input.substr(zero + 1));
    if (given.ok() && given.value().is_map()) variables = given.value().as_map();
  }
  const auto text = chat_template.value().render_with(variables);
  if (text.ok()) LOCKSTEP_CHECK(!find_invalid_utf8(text.value()), "the text is no UTF-8");
  return 0;
}
