// SPDX-License-Identifier: Apache-2.0
// One function a command: values to a configuration, configuration to the part that does the work. Results go
// to standard output. A Status without a message says all on standard output already.
#pragma once

#include <string>

#include "cli/command_line.h"
#include "core/status.h"

namespace lockstep::cli {

Status command_train(const Invocation& invocation);
Status command_sft(const Invocation& invocation);
Status command_eval(const Invocation& invocation);
Status command_generate(const Invocation& invocation);
Status command_init(const Invocation& invocation);
Status command_verify(const Invocation& invocation);
Status command_inspect(const Invocation& invocation);
Status command_demo(const Invocation& invocation, const std::string& shown_program);
Status command_debug(const Invocation& invocation);

// Writes to standard output. Whether it arrived is flush_output's to say.
void print(const std::string& text);
// kStopped when something written to standard output did not arrive.
Status flush_output();

}  // namespace lockstep::cli
