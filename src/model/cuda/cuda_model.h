// SPDX-License-Identifier: Apache-2.0
// A model whose tensors are on a GPU.
#pragma once

#include <memory>

#include "core/status.h"
#include "model/model.h"

namespace lockstep::model {

// On GPU `choice.index`, masters zero. Errors (kInvalid): no such GPU; the GPU or the shape does not fit the
// profile.
Result<std::unique_ptr<Model>> make_cuda_model(Profile profile, const ModelConfig& config,
                                               const DeviceChoice& choice);

}  // namespace lockstep::model
