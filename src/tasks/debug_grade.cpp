// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "tasks/registry.h"

namespace lockstep::tasks {
namespace {

using Json = nlohmann::json;

// The text of a string or a number.
Result<std::string> text_of(const Json& object, const char* key, bool may_be_number) {
  const auto at = object.find(key);
  if (at == object.end()) return invalid("key \"{}\" is missing", key);
  if (at->is_string()) return at->get<std::string>();
  if (may_be_number && at->is_number()) {
    constexpr double kExactLimit = 0x1p53;
    if (at->is_number_float() && std::abs(at->get<double>()) >= kExactLimit) {
      return invalid("key \"{}\": a number this large loses digits; write it as a string", key);
    }
    return at->dump();
  }
  return invalid("key \"{}\" must be a string{}", key, may_be_number ? " or a number" : "");
}

Result<double> grade_line(const Grader& grader, const std::string& line) {
  const Json object = Json::parse(line, nullptr, false);
  if (object.is_discarded()) return invalid("not JSON");
  if (!object.is_object()) return invalid("not a JSON object");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string response, text_of(object, "response", false));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string label, text_of(object, "label", true));
  return grader.grade(response, label);
}

}  // namespace

Result<int> debug_grade(const std::string& rm_type, std::istream& in, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Grader> grader, make_grader(rm_type));
  int bad = 0;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<double> reward = grade_line(*grader, line);
    Json answer = Json::object();
    if (reward.ok()) {
      answer["reward"] = reward.value();
    } else {
      ++bad;
      answer["error"] = reward.status().message();
      answer["line"] = number;
    }
    out << answer.dump() << '\n';
  }
  if (in.bad()) return invalid("reading the lines to grade failed after line {}", number);
  if (!out.flush()) return stopped("writing the rewards failed; is the disk full or the pipe closed?");
  return bad;
}

}  // namespace lockstep::tasks
