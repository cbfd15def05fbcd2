// SPDX-License-Identifier: Apache-2.0
// Text helpers of the graders. No locale: character classes are the tables written here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::tasks {

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct CodePoint {
  uint32_t value = 0;
  size_t size_bytes = 1;
};
// The code point that starts at byte `at` (< text.size()); a malformed byte is U+FFFD of one byte.
CodePoint code_point_at(std::string_view text, size_t at);

// Unicode White_Space and the four ASCII separators U+001C to U+001F.
bool is_space(uint32_t code_point);
// Letters of the Latin, Greek and Cyrillic blocks; other scripts count as letters from U+0531 on, except the
// blocks of punctuation, symbols and private use.
bool is_letter(uint32_t code_point);

// Without white space at both ends.
std::string_view strip(std::string_view text);
// Lower case of ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic.
std::string lower(std::string_view text);
// Left to right, without overlap; `from` is not empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
// Each of the last `count` code points of the text (all of it when shorter).
std::string_view last_code_points(std::string_view text, size_t count);

// The content of the last \boxed{...}. None when there is no box, or when the last one has no `{` at once or
// is never closed: a box that was cut off does not bring back an earlier one.
std::optional<std::string_view> last_box(std::string_view text);

}  // namespace lockstep::tasks
