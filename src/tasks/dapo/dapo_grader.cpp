// SPDX-License-Identifier: Apache-2.0
#include "tasks/dapo/dapo_grader.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tasks/number.h"
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr size_t kTailCharacters = 300;

// Words of quantity and bits of layout that say nothing about the number.
constexpr std::string_view kDropped[] = {
    "square",     "ways",       "integers",     "dollars",      "mph",
    "inches",     "hours",      "km",           "units",        "\\ldots",
    "sue",        "points",     "feet",         "minutes",      "digits",
    "cents",      "degrees",    "cm",           "gm",           "pounds",
    "meters",     "meals",      "edges",        "students",     "childrentickets",
    "multiples",  "\\text{s}",  "\\text{.}",    "\\text{\ns}",  "\\text{}^2",
    "\\text{}^3", "\\text{\n}", "\\text{}",     "\\mathrm{th}", "^\\circ",
    "^{\\circ}",  "\\;",        ",\\!",         "{,}",          "\"",
    "\\dots",     "<|im_end|>", "<|endoftext|>"};

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_space(c.value)) break;
    at += c.size_bytes;
  }
  return at;
}

// What follows the last "answer", blanks, ":" on the next line that is not blank. Found left to right; a line
// that has been taken is not searched again.
std::optional<std::string_view> answer_line(std::string_view text) {
  constexpr std::string_view kKey = "answer";
  std::string small(text);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  std::optional<std::string_view> found;
  for (size_t at = small.find(kKey); at != std::string::npos; at = small.find(kKey, at)) {
    size_t i = skip_space(text, at + kKey.size());
    if (i >= text.size() || text[i] != ':') {
      at += kKey.size();
      continue;
    }
    const size_t begin = skip_space(text, i + 1);
    if (begin == text.size()) {  // only blanks: an empty answer, unless they are all line ends
      const std::string_view blanks = text.substr(i + 1);
      if (blanks.find_first_not_of('\n') != std::string_view::npos) found = std::string_view();
      break;
    }
    const size_t end = std::min(text.find('\n', begin), text.size());
    found = text.substr(begin, end - begin);
    at = end;
  }
  return found;
}

// Every `open`...} becomes its content, up to the first brace.
std::string unwrap(std::string_view text, std::string_view open) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(open); at != std::string_view::npos; at = text.find(open, begin)) {
    const size_t close = text.find('}', at);
    if (close == std::string_view::npos) break;
    out.append(text, begin, at - begin);
    out.append(text, at + open.size(), close - at - open.size());
    begin = close + 1;
  }
  return out.append(text.substr(begin));
}

// From the first \boxed{ to the last brace.
std::string unwrap_box(const std::string& text) {
  constexpr std::string_view kOpen = "\\boxed{";
  const size_t at = text.find(kOpen);
  const size_t close = text.rfind('}');
  if (at == std::string::npos || close == std::string::npos || close < at) return text;
  const size_t begin = at + kOpen.size();
  return text.substr(0, at) + text.substr(begin, close - begin) + text.substr(close + 1);
}

// Braces around the `count` single characters after each `command` that has none.
std::string brace_arguments(std::string_view text, std::string_view command, int count) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(command); at != std::string_view::npos; at = text.find(command, begin)) {
    const size_t after = at + command.size();
    out.append(text, begin, after - begin);
    begin = after;
    if (after >= text.size() || text[after] == '{') continue;
    std::string braced;
    size_t i = after;
    int taken = 0;
    for (; taken < count && i < text.size(); ++taken) {
      const size_t size = code_point_at(text, i).size_bytes;
      braced.append("{").append(text, i, size).append("}");
      i += size;
    }
    if (taken < count) continue;
    out += braced;
    begin = i;
  }
  return out.append(text.substr(begin));
}

std::string normal_form(std::string_view answer) {
  std::string s(answer.substr(answer.rfind('=') + 1));  // npos + 1 is 0: all of it
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"an ", ""},
                                 {"a ", ""},
                                 {".$", "$"},
                                 {"\\$", ""},
                                 {"\\ ", ""},
                                 {" ", ""},
                                 {"mbox", "text"},
                                 {",\\text{and}", ","},
                                 {"\\text{and}", ","},
                                 {"\\text{m}", "\\text{}"}}) {
    s = replace_all(s, from, to);
  }
  for (const std::string_view dropped : kDropped) s = replace_all(s, dropped, "");
  const size_t dollar = s.find('$');
  const size_t second = dollar == std::string::npos ? dollar : s.find('$', dollar + 1);
  if (second != std::string::npos) s = s.substr(dollar + 1, second - dollar - 1);
  for (const std::string_view open : {"\\text{", "\\textbf{", "\\overline{"}) s = unwrap(s, open);
  s = brace_arguments(brace_arguments(unwrap_box(s), "frac", 2), "sqrt", 1);
  s = replace_all(s, "$", "");
  const std::string joined = replace_all(s, ",", "");
  if (!joined.empty() && std::all_of(joined.begin(), joined.end(), is_digit)) s = joined;
  return std::string(strip(s));
}

}  // namespace

double grade_dapo(std::string_view response, std::string_view label) {
  const std::optional<std::string_view> answer = answer_line(last_code_points(response, kTailCharacters));
  if (!answer) return -1;
  std::string wanted = normal_form(strip(label));
  const std::optional<Decimal> number = parse_decimal(wanted);
  if (number && number->exponent >= 0) {
    const std::optional<std::string> integer = near_integer(*number);
    if (integer) wanted = *integer;
  }
  return !wanted.empty() && normal_form(*answer) == wanted ? 1 : -1;
}

}  // namespace lockstep::tasks
