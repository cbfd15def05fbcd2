// SPDX-License-Identifier: Apache-2.0
// Any bytes to every grader: no crash, no hang, a reward in range, the same one twice.
// The first line of the input is the label, the rest the response.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "tasks/registry.h"

namespace {

using lockstep::tasks::Grader;

std::vector<std::unique_ptr<Grader>> all_graders() {
  std::vector<std::unique_ptr<Grader>> graders;
  for (const std::string& name : lockstep::tasks::grader_names()) {
    graders.push_back(lockstep::tasks::make_grader(name).value());
  }
  return graders;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Grader>> kGraders = all_graders();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\n');
  const std::string_view label = text.substr(0, cut);
  const std::string_view response = cut == text.npos ? text : text.substr(cut + 1);
  // The algebra is reached only through a box, so every input is also graded as a box's content.
  const std::string boxed = "\\boxed{" + std::string(response) + "}";
  for (const std::unique_ptr<Grader>& grader : kGraders) {
    for (const std::string_view given : {response, std::string_view(boxed)}) {
      const double reward = grader->grade(given, label);
      LOCKSTEP_CHECK(reward >= -1 && reward <= 1);
      LOCKSTEP_CHECK(grader->grade(given, label) == reward);
    }
  }
  return 0;
}
