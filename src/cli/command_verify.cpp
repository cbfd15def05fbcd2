// SPDX-License-Identifier: Apache-2.0
// verify and inspect.
#include "cli/commands.h"
#include "verify/inspect.h"
#include "verify/verify.h"

namespace lockstep::cli {

Status command_verify(const Invocation& invocation) {
  verify::VerifyOptions options;
  options.prefix = invocation.values.flag("prefix");
  LOCKSTEP_ASSIGN_OR_RETURN(const verify::Verdict verdict,
                            verify::verify_paths(invocation.words[0], invocation.words[1], options));
  for (const std::string& line : verdict.lines) print(line + "\n");
  return {verdict.code, ""};
}

Status command_inspect(const Invocation& invocation) {
  verify::InspectOptions options;
  options.digests = invocation.values.flag("digests");
  options.statistics = invocation.values.flag("statistics");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, verify::inspect_path(invocation.words[0], options));
  print(text);
  return ok_status();
}

}  // namespace lockstep::cli
