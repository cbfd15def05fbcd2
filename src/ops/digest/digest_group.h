// SPDX-License-Identifier: Apache-2.0
// The unit of work of a digest on the device.
#pragma once

#include <cstdint>

#include "numerics/constants.h"

namespace lockstep::ops {

inline constexpr int kDigestGroupBlocks = 8;  // blocks a warp takes at a time; changes no bit
inline constexpr int64_t kDigestGroupBytes = kDigestGroupBlocks * numerics::kDigestBlockBytes;

}  // namespace lockstep::ops
