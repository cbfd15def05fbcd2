// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/encode_tiled.h"

#include <cuda_runtime.h>

#include "device/cuda/error.h"

namespace lockstep::cuda {

EncodeTiled encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t code =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  check(code, "looking up cuTensorMapEncodeTiled in the driver");
  if (function == nullptr || found != cudaDriverEntryPointSuccess)
    throw Error(cudaErrorNotSupported, "looking up cuTensorMapEncodeTiled in the driver");
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace lockstep::cuda
