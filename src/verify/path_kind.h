// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/status.h"

namespace lockstep::verify {

enum class PathKind { kRunFolder, kCheckpointFolder, kLedgerFile, kSafetensorsFile };

// kInvalid: not there, or none of these.
Result<PathKind> path_kind(const std::string& path);
const char* kind_name(PathKind kind);  // "a run folder", ...

}  // namespace lockstep::verify
