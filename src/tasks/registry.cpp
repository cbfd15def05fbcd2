// SPDX-License-Identifier: Apache-2.0
#include "tasks/registry.h"

#include <optional>

#include "core/suggest.h"
#include "tasks/dapo/dapo_grader.h"
#include "tasks/f1/f1_grader.h"
#include "tasks/math/math_grader.h"
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

using Grade = double (*)(std::string_view response, std::string_view label);

// A box's content is the whole answer, so `boxed_math` is `math`: content without a box of its own would
// otherwise never pay.
double grade_boxed_math(std::string_view response, std::string_view label) {
  return grade_math(response, label);
}
template <Grade kGrade>
double grade_boxed(std::string_view response, std::string_view label) {
  const std::optional<std::string_view> box = last_box(response);
  return box ? kGrade(*box, label) : 0;
}

struct Entry {
  const char* name;
  Grade grade;
  bool wants_box;
};

constexpr Entry kEntries[] = {
    {"gsm8k", grade_gsm8k, false},
    {"math", grade_math, true},
    {"dapo", grade_dapo, false},
    {"f1", grade_f1, false},
    {"boxed_gsm8k", grade_boxed<grade_gsm8k>, true},
    {"boxed_math", grade_boxed_math, true},
    {"boxed_f1", grade_boxed<grade_f1>, true},
};

const Entry* find_entry(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

class FunctionGrader : public Grader {
 public:
  explicit FunctionGrader(Grade grade) : grade_(grade) {}
  double grade(std::string_view response, std::string_view label) const override {
    return grade_(response, label);
  }

 private:
  Grade grade_;
};

}  // namespace

std::vector<std::string> grader_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

Result<std::unique_ptr<Grader>> make_grader(const std::string& rm_type) {
  const Entry* entry = find_entry(rm_type);
  if (entry != nullptr) return std::unique_ptr<Grader>(std::make_unique<FunctionGrader>(entry->grade));
  const std::string nearest = nearest_name(rm_type, grader_names());
  std::string known;
  for (const std::string& name : grader_names()) known += (known.empty() ? "" : ", ") + name;
  if (!nearest.empty()) return invalid("--rm-type {}: no such grader; did you mean {}?", rm_type, nearest);
  return invalid("--rm-type {}: no such grader; there are {}", rm_type, known);
}

std::string default_prompt_suffix(const std::string& rm_type) {
  const Entry* entry = find_entry(rm_type);
  if (entry == nullptr || !entry->wants_box) return "";
  return "Please reason step by step, and put your final answer within \\boxed{}.";
}

}  // namespace lockstep::tasks
