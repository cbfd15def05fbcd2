// SPDX-License-Identifier: Apache-2.0
// compute-sanitizer makes a kernel a hundred times slower and more: tools/sanitize_gpu.sh sets
// LOCKSTEP_SANITIZED, and long tests then take fewer cases. Every kernel, and every way through it, stays.
#pragma once

#include <cstdlib>
#include <vector>

namespace lockstep::testing {

inline bool sanitized() {
  return std::getenv("LOCKSTEP_SANITIZED") != nullptr;
}

// All of them; when sanitized the first `few`.
template <typename T>
std::vector<T> cases(std::vector<T> all, size_t few) {
  if (sanitized() && all.size() > few) all.erase(all.begin() + static_cast<std::ptrdiff_t>(few), all.end());
  return all;
}

}  // namespace lockstep::testing
