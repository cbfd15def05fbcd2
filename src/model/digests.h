// SPDX-License-Identifier: Apache-2.0
// Digests of all parameters of an arena, by Hugging Face name in byte order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/context.h"
#include "model/parameters.h"
#include "numerics/bfloat16.h"
#include "numerics/digest.h"

namespace lockstep::model {

using NamedDigests = std::vector<std::pair<std::string, numerics::Digest128>>;

NamedDigests digest_parameters(const cpu::Context& context, const ParameterTable& table, const float* arena);
NamedDigests digest_parameters(const cpu::Context& context, const ParameterTable& table,
                               const numerics::Bf16* arena);
// Of the integer image, before the clip factor.
NamedDigests digest_gradient(const cpu::Context& context, const ParameterTable& table, const int64_t* image);
// Adds a list to another, each name with a prefix.
void append_digests(const char* prefix, const NamedDigests& digests, NamedDigests* out);
// One digest of a list: of the concatenated hexadecimal digests and names.
numerics::Digest128 combine_digests(const NamedDigests& digests);

}  // namespace lockstep::model
