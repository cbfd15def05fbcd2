// SPDX-License-Identifier: Apache-2.0
// JSON written in one fixed way, so that equal values are equal bytes: keys in the order given, no spaces.
// A float is the shortest decimal that reads back as the same bits; infinity and NaN are strings.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ledger {

// In quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view value);
inline std::string json_text(const std::string& value) {
  return json_text(std::string_view(value));
}
inline std::string json_text(const char* value) {
  return json_text(std::string_view(value));
}
// "-0.0" for minus zero; "inf", "-inf" and "nan" in quotes.
std::string json_text(double value);
std::string json_text(float value);
template <std::integral T>
std::string json_text(T value) {
  if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else {
    return std::to_string(value);
  }
}

class JsonObject {
 public:
  template <typename T>
  JsonObject& add(std::string_view key, const T& value) {
    return add_json(key, json_text(value));
  }
  // `json` is a value written in this way already: an object, an array.
  JsonObject& add_json(std::string_view key, std::string_view json);
  std::string text() const { return body_ + (body_.empty() ? "{}" : "}"); }

 private:
  std::string body_;
};

// [a,b,...] of values written already.
std::string json_array(const std::vector<std::string>& items);

}  // namespace lockstep::ledger
