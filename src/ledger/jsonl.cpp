// SPDX-License-Identifier: Apache-2.0
// Cutting back metrics.jsonl and environment.jsonl at a resume.
#include <nlohmann/json.hpp>

#include "ledger/ledger.h"

namespace lockstep::ledger {

Result<int64_t> truncate_jsonl_after_step(const std::string& path, const std::string& key, int64_t step) {
  if (!path_exists(path)) return int64_t{0};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  size_t keep = 0;
  for (int64_t number = 1; keep < text.size(); ++number) {
    const size_t newline = text.find('\n', keep);
    if (newline == std::string::npos) break;  // torn
    const std::string line = text.substr(keep, newline - keep);
    const bool last = newline + 1 == text.size();
    const bool zero = line.find('\0') != std::string::npos;
    const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    if (zero || !value.is_object()) {
      if (last) break;
      return invalid("{}:{}: is not a JSON object; move the file away to go on", path, number);
    }
    const auto found = value.find(key);
    if (found != value.end() && found->is_number_integer() && found->get<int64_t>() > step) break;
    keep = newline + 1;
  }
  const auto cut = static_cast<int64_t>(text.size() - keep);
  if (cut > 0) LOCKSTEP_RETURN_IF_ERROR(truncate_file(path, static_cast<int64_t>(keep)));
  return cut;
}

}  // namespace lockstep::ledger
