// SPDX-License-Identifier: Apache-2.0
#include "core/suggest.h"

#include <algorithm>

namespace lockstep {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance = wanted.size() / 3 + 3;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(wanted, name);
    if (distance < best_distance && 2 * distance <= std::max(wanted.size(), name.size())) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace lockstep
