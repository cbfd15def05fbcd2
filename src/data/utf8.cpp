// SPDX-License-Identifier: Apache-2.0
#include "data/utf8.h"

#include <utility>

namespace lockstep::data {

Utf8Char next_utf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(offset);
  if (lead < 0x80) return {lead, 1, true, false};
  Utf8Char bad{kReplacementCharacter, 1, false, false};
  if (lead < 0xC2 || lead > 0xF4) return bad;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and codes above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  char32_t code = lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if (offset + static_cast<size_t>(i) >= text.size()) {
      bad.length_bytes = i;
      bad.incomplete = true;
      return bad;
    }
    const unsigned char next = byte(offset + static_cast<size_t>(i));
    if (next < low || next > high) {
      bad.length_bytes = i;
      return bad;
    }
    code = (code << 6) | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, true, false};
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Char c = next_utf8(text, i);
    if (!c.valid) return i;
    i += static_cast<size_t>(c.length_bytes);
  }
  return std::nullopt;
}

bool is_ascii(std::string_view text) {
  unsigned char bits = 0;
  for (const char c : text) bits |= static_cast<unsigned char>(c);
  return bits < 0x80;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    if (c.valid) {
      out.append(text.substr(i, static_cast<size_t>(c.length_bytes)));
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    i += static_cast<size_t>(c.length_bytes);
  }
  return out;
}

std::vector<size_t> utf8_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); i += static_cast<size_t>(next_utf8(text, i).length_bytes)) {
    offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

int64_t utf8_length(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); i += static_cast<size_t>(next_utf8(text, i).length_bytes)) ++count;
  return count;
}

bool is_python_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view strip(std::string_view text, bool left, bool right, std::optional<std::string_view> chars) {
  const auto piece_at = [&](size_t i) {
    return text.substr(i, static_cast<size_t>(next_utf8(text, i).length_bytes));
  };
  const auto strippable = [&](std::string_view piece) {
    if (!chars) return is_python_space(next_utf8(piece, 0).code);
    for (size_t j = 0; j < chars->size();) {
      const size_t length = static_cast<size_t>(next_utf8(*chars, j).length_bytes);
      if (chars->substr(j, length) == piece) return true;
      j += length;
    }
    return false;
  };
  // One way, so that no offsets are kept and a text that begins with what stays costs nothing on the left.
  size_t begin = 0;
  while (left && begin < text.size() && strippable(piece_at(begin))) begin += piece_at(begin).size();
  if (!right) return text.substr(begin);
  size_t end = begin;
  for (size_t i = begin; i < text.size();) {
    const std::string_view piece = piece_at(i);
    i += piece.size();
    if (!strippable(piece)) end = i;
  }
  return text.substr(begin, end - begin);
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string text = std::exchange(pending_, {});
  text.append(bytes);
  // Only the last three bytes can belong to a character that is still incomplete.
  size_t whole = text.size();
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t start = text.size() - back;
    const Utf8Char c = next_utf8(text, start);
    if (c.incomplete && static_cast<size_t>(c.length_bytes) == back) {
      whole = start;
      break;
    }
  }
  pending_ = text.substr(whole);
  text.resize(whole);
  return replace_invalid_utf8(text);
}

std::string Utf8Stream::finish() {
  return replace_invalid_utf8(std::exchange(pending_, {}));
}

}  // namespace lockstep::data
