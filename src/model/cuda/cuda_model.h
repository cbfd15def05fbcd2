// SPDX-License-Identifier: Apache-2.0
// A model whose tensors are on a GPU.
#pragma once

#include <memory>

#include "core/status.h"
#include "model/gpu.h"
#include "model/model.h"

namespace lockstep::model {

// GPU `device` as it is now. Errors (kInvalid), without a remedy: no such GPU; the GPU or the shape does not
// fit the profile.
Result<GpuInfo> cuda_device(Profile profile, const ModelConfig& config, int device);

// On GPU `choice.index`, masters zero. Errors (kInvalid): no such GPU; the GPU or the shape does not fit the
// profile.
Result<std::unique_ptr<Model>> make_cuda_model(Profile profile, const ModelConfig& config,
                                               const DeviceChoice& choice);

}  // namespace lockstep::model
