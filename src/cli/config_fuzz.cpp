// SPDX-License-Identifier: Apache-2.0
// Any bytes as a --config file: no crash, a refusal is one line that names the file, and what is taken
// resolves or is refused, and survives --dry-run.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cli/config_file.h"
#include "cli/describe.h"
#include "cli/option.h"
#include "cli/resolve.h"
#include "core/check.h"

using namespace lockstep;

namespace {

// The command line refuses a run without them before it resolves anything.
bool has_required(const cli::Values& values) {
  return std::all_of(cli::all_options().begin(), cli::all_options().end(), [&](const cli::Option& option) {
    return (option.commands & values.command()) == 0 || !option.required || values.given(option.name);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const cli::CommandSet command : {cli::kTrain, cli::kSft, cli::kEval, cli::kGenerate}) {
    cli::Values values(command);
    std::vector<std::string> notes;
    const Status status = cli::read_config_text(text, "f", &values, &notes);
    if (!status.ok()) {
      LOCKSTEP_CHECK(status.message().rfind("f:", 0) == 0);
      LOCKSTEP_CHECK(status.message().find('\n') == std::string::npos);
      continue;
    }
    if (command != cli::kTrain || !has_required(values)) continue;
    std::vector<std::string> warnings;
    const auto config = cli::resolve_train(values, &warnings);
    if (!config.ok()) continue;
    const std::string described = cli::describe(config.value());
    cli::Values again(command);
    LOCKSTEP_CHECK(cli::read_config_text(described, "d", &again, &notes).ok());
    const auto config_again = cli::resolve_train(again, &warnings);
    LOCKSTEP_CHECK(config_again.ok());
    LOCKSTEP_CHECK(cli::describe(config_again.value()) == described);
  }
  return 0;
}
