// SPDX-License-Identifier: Apache-2.0
// debug tokenize, template, grade, logits, tc16.
#include <iostream>

#include "cli/commands.h"
#include "cli/resolve.h"
#include "data/debug.h"
#include "loop/debug_logits.h"
#include "numerics/tc16_check.h"
#include "tasks/registry.h"

namespace lockstep::cli {
namespace {

// Bad lines have their answer on standard output; the exit code says that there were some.
template <typename Count>
Status count_verdict(const Result<Count>& bad_lines) {
  if (!bad_lines.ok()) return bad_lines.status();
  if (bad_lines.value() == 0) return ok_status();
  return different("{} of the lines could not be answered; their output has \"error\" and \"line\"",
                   bad_lines.value());
}

Status debug_tc16(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const numerics::Tc16Check check, numerics::check_tc16_file(path));
  if (check.first_difference >= 0)
    print(fmt::format("first difference: result {}\n", check.first_difference));
  print(fmt::format("tc16: {} of {} equal\n", check.equal, check.total));
  return check.equal == check.total ? ok_status() : Status(StatusCode::kDifferent, "");
}

}  // namespace

Status command_debug(const Invocation& invocation) {
  const Values& values = invocation.values;
  std::ios::sync_with_stdio(false);
  switch (invocation.command) {
    case kDebugTokenize:
      return count_verdict(data::debug_tokenize(values.text("tokenizer"), std::cin, std::cout));
    case kDebugTemplate:
      return count_verdict(data::debug_template(values.text("tokenizer"), std::cin, std::cout));
    case kDebugGrade:
      return count_verdict(tasks::debug_grade(values.text("rm-type"), std::cin, std::cout));
    case kDebugTc16:
      return debug_tc16(invocation.words[0]);
    default: {
      LOCKSTEP_ASSIGN_OR_RETURN(const loop::DebugLogitsConfig config, resolve_debug_logits(values));
      return loop::run_debug_logits(config);
    }
  }
}

}  // namespace lockstep::cli
