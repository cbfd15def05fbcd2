// SPDX-License-Identifier: Apache-2.0
#include "tasks/gsm8k/gsm8k_grader.h"

#include <optional>

#include "tasks/gsm8k/number_scan.h"
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr std::string_view kMark = "####";

// The first line that is not blank.
std::string_view first_line(std::string_view text) {
  text = strip(text);
  return text.substr(0, text.find('\n'));
}

std::optional<NumberInText> answer_of(std::string_view response) {
  const size_t mark = response.rfind(kMark);
  if (mark != std::string_view::npos) return next_number(first_line(response.substr(mark + kMark.size())), 0);
  std::optional<NumberInText> last;
  std::optional<NumberInText> number = next_number(response, 0);
  while (number) {
    last = number;
    number = next_number(response, last->end);
  }
  return last;
}

// The label is one number and no second one.
std::optional<NumberInText> label_of(std::string_view label) {
  const size_t mark = label.rfind(kMark);
  if (mark != std::string_view::npos) label.remove_prefix(mark + kMark.size());
  std::optional<NumberInText> number = next_number(label, 0);
  if (!number || next_number(label, number->end)) return std::nullopt;
  return number;
}

}  // namespace

double grade_gsm8k(std::string_view response, std::string_view label) {
  const std::optional<NumberInText> wanted = label_of(label);
  if (!wanted) return 0;
  const std::optional<NumberInText> given = answer_of(response);
  return given && same_number(*given, *wanted) ? 1 : 0;
}

std::string label_from_gsm8k_answer(std::string_view answer) {
  const size_t mark = answer.rfind(kMark);
  if (mark == std::string_view::npos) return "";
  return std::string(strip(answer.substr(mark + kMark.size())));
}

}  // namespace lockstep::tasks
