// SPDX-License-Identifier: Apache-2.0
#include "ledger/json_text.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::ledger {
namespace {

template <typename T>
std::string number_text(T value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  if (value == 0 && std::signbit(value)) return "-0.0";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

}  // namespace

std::string json_text(std::string_view value) {
  return nlohmann::json(std::string(value)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string json_text(double value) {
  return number_text(value);
}
std::string json_text(float value) {
  return number_text(value);
}

JsonObject& JsonObject::add_json(std::string_view key, std::string_view json) {
  body_ += body_.empty() ? '{' : ',';
  body_ += json_text(key);
  body_ += ':';
  body_ += json;
  return *this;
}

std::string json_array(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) {
    if (text.size() > 1) text += ',';
    text += item;
  }
  return text + ']';
}

}  // namespace lockstep::ledger
