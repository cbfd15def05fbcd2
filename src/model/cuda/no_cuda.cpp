// SPDX-License-Identifier: Apache-2.0
// In place of the GPU backend where the program was built without a CUDA toolkit.
#include "model/cuda/cuda_model.h"

namespace lockstep::model {

Result<GpuInfo> cuda_device(Profile /*profile*/, const ModelConfig& /*config*/, int /*device*/) {
  return invalid("this program was built without a CUDA toolkit");
}

Result<std::unique_ptr<Model>> make_cuda_model(Profile /*profile*/, const ModelConfig& /*config*/,
                                               const DeviceChoice& /*choice*/) {
  return invalid(
      "--device cuda: this program was built without a CUDA toolkit; build it where nvcc is, or use --device "
      "cpu");
}

}  // namespace lockstep::model
