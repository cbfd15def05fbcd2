// SPDX-License-Identifier: Apache-2.0
// What a start ran on and with: free of any promise, and so apart from the ledger.
#pragma once

#include <string>

#include "loop/config.h"
#include "loop/start.h"

namespace lockstep::loop {

// One JSON object: time, host, kernel, processor, compiler, libraries, SHA-256 of the program, threads and
// other free options, the GPU where it is used, the checkpoint ("" for none) and the hash of the ledger's
// last line it goes on from.
std::string environment_json(const MachineConfig& machine, const Start& start,
                             const std::string& checkpoint_folder, const std::string& ledger_sha256);

}  // namespace lockstep::loop
