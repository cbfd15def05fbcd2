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

// On GPU `device`, masters zero. Errors (kInvalid): no such GPU; the GPU or the shape does not fit the
// profile. sms: multiprocessors to use, 0 for all; changes no bit.
Result<std::unique_ptr<Model>> make_cuda_model(Profile profile, const ModelConfig& config, int device,
                                               int sms);

}  // namespace lockstep::model
