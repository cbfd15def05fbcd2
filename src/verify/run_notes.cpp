// SPDX-License-Identifier: Apache-2.0
#include "verify/run_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "loop/saved_state.h"

namespace lockstep::verify {
namespace {

using Json = nlohmann::ordered_json;

using loop::kEnvironmentFile;
constexpr size_t kMaxNames = 8;
// Keys of a start that differ between any two of them and explain nothing.
constexpr const char* kPassedOver[] = {"time", "host", "pid", "checkpoint", "ledger_sha256"};

struct Start {
  int64_t step = 0;  // the first that this start computes: that behind its checkpoint
  Json fields;
};

// The starts at or before `step`, in order. A line that is no such object is passed over: these are notes
// only.
std::vector<Start> read_starts(const std::string& run, int64_t step) {
  std::vector<Start> starts;
  const auto text = read_file(join_path(run, kEnvironmentFile));
  if (!text.ok()) return starts;
  size_t begin = 0;
  while (begin < text.value().size()) {
    size_t end = text.value().find('\n', begin);
    if (end == std::string::npos) end = text.value().size();
    Json fields = Json::parse(text.value().substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (!fields.is_object()) continue;
    int64_t at = 0;
    const auto folder = fields.find("checkpoint");
    if (folder != fields.end() && folder->is_string()) {
      const std::string name = base_name(folder->get<std::string>());
      const std::optional<int64_t> iteration = checkpoint::checkpoint_iteration(name);
      if (iteration) at = *iteration + 1;
    }
    if (at <= step) starts.push_back({at, std::move(fields)});
  }
  return starts;
}

std::string short_text(const Json& fields, const std::string& key) {
  const auto found = fields.find(key);
  if (found == fields.end()) return "nothing";
  return found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> differing_fields(const Json& a, const Json& b) {
  std::vector<std::string> lines;
  Json all = a;
  for (const auto& [key, value] : b.items()) all[key] = value;
  for (const auto& entry : all.items()) {
    const std::string& key = entry.key();
    const bool passed_over =
        std::find(std::begin(kPassedOver), std::end(kPassedOver), key) != std::end(kPassedOver);
    const std::string left = short_text(a, key);
    const std::string right = short_text(b, key);
    if (!passed_over && left != right) lines.push_back(fmt::format("{}: {} and {}", key, left, right));
  }
  return lines;
}

}  // namespace

std::vector<std::string> promise_notes(const std::string& run_a, const std::string& run_b, int64_t step) {
  const std::vector<Start> a = read_starts(run_a, step);
  const std::vector<Start> b = read_starts(run_b, step);
  std::vector<std::string> lines;
  if (a.empty() || b.empty()) return lines;
  const std::vector<std::string> fields = differing_fields(a.back().fields, b.back().fields);
  const auto restart = [&](const char* which, const std::vector<Start>& starts) {
    if (starts.size() < 2) return;
    lines.push_back(fmt::format("  the {} run was started again at step {}", which, starts.back().step));
  };
  restart("first", a);
  restart("second", b);
  std::string promise;
  if (!lines.empty()) promise = "equal after a restart";
  if (!fields.empty())
    promise += std::string(promise.empty() ? "" : ", or ") + "equal on other machines and options";
  if (promise.empty()) promise = "equal when repeated (same machine, same options)";
  for (size_t i = 0; i < std::min(fields.size(), kMaxNames); ++i) lines.push_back("  " + fields[i]);
  if (fields.size() > kMaxNames) lines.push_back(fmt::format("  and {} more", fields.size() - kMaxNames));
  lines.insert(lines.begin(), "  promise broken: " + promise);
  return lines;
}

}  // namespace lockstep::verify
