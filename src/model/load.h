// SPDX-License-Identifier: Apache-2.0
// A model from a Hugging Face folder, and random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "model/model.h"

namespace lockstep::model {

// config.json and the weights, converted to binary32 (exact) as masters. Not yet prepared (Model::prepare).
// Errors (kInvalid): an unsupported config; a missing, unexpected or misshapen tensor, by name; a head that
// differs from a tied embedding.
Result<std::unique_ptr<Model>> load_model(const std::string& folder, Profile profile,
                                          const DeviceChoice& choice = {});

// All parameters of `table` from the folder's safetensors into an arena.
Status read_parameters(const std::string& folder, const ParameterTable& table, bool tied, float* arena);

// Random weights: matrices normal with standard deviation `deviation` (sum of uniforms, docs/numerics.md,
// Init), norm gains 1, biases 0. A pure function of (config, seed).
void initialise_parameters(const cpu::Context& context, const ParameterTable& table, uint64_t seed,
                           float deviation, float* arena);

}  // namespace lockstep::model
