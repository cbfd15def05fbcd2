// SPDX-License-Identifier: Apache-2.0
// How deeply a JSON text nests, told without a parser: parsers, copies and destructors recurse.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr int kMostNesting = 128;

// Whether arrays and objects of `json` nest more than `most` deep. Brackets within strings do not count. Any
// bytes will do.
bool nests_deeper(std::string_view json, int most = kMostNesting);

}  // namespace lockstep
