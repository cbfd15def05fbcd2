// SPDX-License-Identifier: Apache-2.0
// UTF-8 by code point. One rule for bytes that are no UTF-8, everywhere: each maximal well-formed prefix of a
// character (or single stray byte) becomes one U+FFFD, as Unicode recommends and other decoders do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct Utf8Char {
  char32_t code = kReplacementCharacter;
  int length_bytes = 0;     // of the character, or of the piece that one U+FFFD stands for; >= 1
  bool valid = false;       // false: code is U+FFFD
  bool incomplete = false;  // not valid, but more bytes could make it so (the text ends inside a character)
};

// The character that starts at text[offset]; offset < text.size().
Utf8Char next_utf8(std::string_view text, size_t offset);
// Offset of the first byte that is not part of a well-formed character.
std::optional<size_t> find_invalid_utf8(std::string_view text);
bool is_ascii(std::string_view text);
void append_utf8(std::string& out, char32_t code);
std::string replace_invalid_utf8(std::string_view text);
// Offsets where characters start, then text.size().
std::vector<size_t> utf8_offsets(std::string_view text);
int64_t utf8_length(std::string_view text);
// White space as Python's str.strip() and re's \s have it.
bool is_python_space(char32_t code);
// Strips white space (no chars) or any of the characters of `chars` from the chosen ends.
std::string_view strip(std::string_view text, bool left, bool right,
                       std::optional<std::string_view> chars = std::nullopt);

// Bytes in, whole characters out. The pieces joined, with finish() last, equal replace_invalid_utf8() of all
// bytes: a character cut off by the end becomes one U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string finish();

 private:
  std::string pending_;  // an incomplete character; at most 3 bytes
};

}  // namespace lockstep::data
