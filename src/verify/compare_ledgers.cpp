// SPDX-License-Identifier: Apache-2.0
#include "verify/compare_ledgers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoint/safetensors.h"

namespace lockstep::verify {
namespace {

using checkpoint::quote_name;
using ledger::Ledger;
using ledger::LedgerRecord;

using Names = std::map<std::string, std::string>;

// The first name at which two maps differ, and how many names do.
struct MapDifference {
  std::string first;
  int64_t count = 0;
};

MapDifference map_difference(const Names& a, const Names& b) {
  Names all = a;
  all.insert(b.begin(), b.end());
  MapDifference found;
  for (const auto& entry : all) {
    const auto left = a.find(entry.first);
    const auto right = b.find(entry.first);
    if (left != a.end() && right != b.end() && left->second == right->second) continue;
    if (found.count == 0) found.first = entry.first;
    ++found.count;
  }
  return found;
}

std::string value_or_nothing(const Names& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? "nothing" : found->second;
}

Names tensor_names(const LedgerRecord& record) {
  Names names;
  for (const auto& [name, digest] : record.tensors) names[name] = digest.hex();
  return names;
}

// What differs inside a record of one step and phase; empty: nothing.
std::vector<std::string> record_differences(const LedgerRecord& a, const LedgerRecord& b) {
  std::vector<std::string> lines;
  const Names left = tensor_names(a);
  const Names right = tensor_names(b);
  const MapDifference tensors = map_difference(left, right);
  if (tensors.count > 0) {
    lines.push_back(fmt::format("tensor {}: digest {} and {} ({} of {} tensors differ)",
                                quote_name(tensors.first), value_or_nothing(left, tensors.first),
                                value_or_nothing(right, tensors.first), tensors.count,
                                std::max(left.size(), right.size())));
  }
  const Names left_scalars(a.scalars.begin(), a.scalars.end());
  const Names right_scalars(b.scalars.begin(), b.scalars.end());
  const MapDifference scalars = map_difference(left_scalars, right_scalars);
  if (scalars.count > 0) {
    lines.push_back(fmt::format("{}: {} and {}", quote_name(scalars.first),
                                value_or_nothing(left_scalars, scalars.first),
                                value_or_nothing(right_scalars, scalars.first)));
  }
  if (a.digest.hex() != b.digest.hex()) {
    lines.push_back(fmt::format("digest of the phase: {} and {}", a.digest.hex(), b.digest.hex()));
  }
  if (lines.empty() && (a.scalars != b.scalars || a.tensors.size() != b.tensors.size())) {
    lines.emplace_back("the order of the fields");
  }
  return lines;
}

// "steps 0 to 4; of step 5: prompts, tokens".
std::string equal_part(const Ledger& ledger, size_t records) {
  if (records == 0) return "nothing but the identity";
  const int64_t step = records < ledger.records.size() ? ledger.records[records].step : INT64_MAX;
  std::string phases;
  const LedgerRecord* last_whole = nullptr;
  for (size_t i = 0; i < records; ++i) {
    const LedgerRecord& record = ledger.records[i];
    if (record.step < step) {
      last_whole = &record;
    } else {
      phases += (phases.empty() ? "" : ", ") + record.phase;
    }
  }
  std::string text;
  if (last_whole != nullptr) {
    const int64_t first = ledger.records[0].step;
    text = first == last_whole->step ? fmt::format("step {}", first)
                                     : fmt::format("steps {} to {}", first, last_whole->step);
  }
  if (!phases.empty()) text += fmt::format("{}of step {}: {}", text.empty() ? "" : "; ", step, phases);
  return text;
}

std::string end_text(const Ledger& ledger) {
  if (ledger.records.empty()) return "has no step";
  const LedgerRecord& last = ledger.records.back();
  return fmt::format("ends with step {}, phase {}", last.step, last.phase);
}

}  // namespace

LedgerComparison compare_ledgers(const Ledger& a, const Ledger& b, const VerifyOptions& options) {
  LedgerComparison result;
  std::vector<std::string>& lines = result.verdict.lines;
  if (a.header != b.header) {
    result.verdict.code = StatusCode::kNotComparable;
    lines.push_back("not comparable: the identities differ: " +
                    ledger::header_difference(a.header, b.header));
    return result;
  }
  const size_t both = std::min(a.records.size(), b.records.size());
  for (size_t i = 0; i < both; ++i) {
    const LedgerRecord& left = a.records[i];
    const LedgerRecord& right = b.records[i];
    if (left.step != right.step || left.phase != right.phase) {
      result.first_step = std::min(left.step, right.step);
      lines.push_back(fmt::format("different: first at record {}: step {} phase {} and step {} phase {}",
                                  i + 1, left.step, left.phase, right.step, right.phase));
    } else {
      const std::vector<std::string> found = record_differences(left, right);
      if (found.empty()) continue;
      result.first_step = left.step;
      lines.push_back(
          fmt::format("different: first at step {}, phase {}: {}", left.step, left.phase, found[0]));
      for (size_t k = 1; k < found.size(); ++k) lines.push_back("  " + found[k]);
    }
    result.verdict.code = StatusCode::kDifferent;
    lines.push_back("  equal before: " + equal_part(a, i));
    return result;
  }
  if (a.records.size() == b.records.size()) {
    lines.push_back(fmt::format("same: {} records, {}", both, equal_part(a, both)));
    return result;
  }
  const bool first_is_shorter = a.records.size() < b.records.size();
  const Ledger& longer = first_is_shorter ? b : a;
  const std::string ends = fmt::format("the {} {}, the {} {}", first_is_shorter ? "first" : "second",
                                       end_text(first_is_shorter ? a : b),
                                       first_is_shorter ? "second" : "first", end_text(longer));
  if (options.prefix) {
    lines.push_back("same as far as both go: " + ends);
    return result;
  }
  result.verdict.code = StatusCode::kDifferent;
  lines.push_back(fmt::format("different: {}; equal before (--prefix asks for no more)", ends));
  return result;
}

}  // namespace lockstep::verify
