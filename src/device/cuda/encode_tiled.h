// SPDX-License-Identifier: Apache-2.0
// Descriptors for the copy engine. For .cu files.
#pragma once

#include <cuda.h>

namespace lockstep::cuda {

// The driver's function that makes descriptors, from the driver that the runtime has loaded, so that nothing
// links to it. Throws Error where there is none.
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
EncodeTiled encode_tiled();

}  // namespace lockstep::cuda
