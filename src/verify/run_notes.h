// SPDX-License-Identifier: Apache-2.0
// Which promise a difference between two runs breaks, from environment.jsonl (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::verify {

// Lines for the verdict: repeat (same machine and options), machine and options (those that differ are
// named), or restart (one of the runs was set going again at or before `step`). Empty when a run has no
// environment.jsonl that says so.
std::vector<std::string> promise_notes(const std::string& run_a, const std::string& run_b, int64_t step);

}  // namespace lockstep::verify
