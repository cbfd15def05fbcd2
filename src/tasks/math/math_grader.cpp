// SPDX-License-Identifier: Apache-2.0
#include "tasks/math/math_grader.h"

#include <optional>
#include <string>

#include "tasks/math/normal_form.h"
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr size_t kMaxAnswerBytes = 4'096;  // longer ones are compared byte for byte

}  // namespace

bool math_answers_agree(std::string_view answer, std::string_view label) {
  answer = strip(answer);
  label = strip(label);
  if (answer.empty() || label.empty()) return false;
  if (answer.size() > kMaxAnswerBytes || label.size() > kMaxAnswerBytes) return answer == label;
  const std::string form = latex_form(label);
  const bool empty = form.find_first_not_of("${}") == std::string::npos;  // and so is an answer equal to it
  if (!empty && latex_form(answer) == form) return true;
  return plain_forms_agree(plain_form(answer), plain_form(label));
}

double grade_math(std::string_view response, std::string_view label) {
  if (label.find("\\boxed") != std::string_view::npos) {
    const std::optional<std::string_view> box = last_box(label);
    if (!box) return 0;
    label = *box;
  }
  const std::optional<std::string_view> answer = last_box(response);
  return answer && math_answers_agree(*answer, label) ? 1 : 0;
}

}  // namespace lockstep::tasks
