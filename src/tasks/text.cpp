// SPDX-License-Identifier: Apache-2.0
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

void append_utf8(std::string& out, uint32_t value) {
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else {  // the case tables stay below U+0800
    out += static_cast<char>(0xC0 | (value >> 6));
    out += static_cast<char>(0x80 | (value & 0x3F));
  }
}

uint32_t lower_code_point(uint32_t c) {
  if (c >= 'A' && c <= 'Z') return c + 32;
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 32;
  if (c == 0x178) return 0xFF;
  if (c >= 0x100 && c <= 0x137 && c != 0x130 && c % 2 == 0) return c + 1;
  if (c >= 0x139 && c <= 0x148 && c % 2 == 1) return c + 1;
  if (c >= 0x14A && c <= 0x177 && c % 2 == 0) return c + 1;
  if (c >= 0x179 && c <= 0x17E && c % 2 == 1) return c + 1;
  if (c >= 0x391 && c <= 0x3A9 && c != 0x3A2) return c + 32;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  return c;
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + size > text.size()) return {0xFFFD, 1};
  uint32_t value = first & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {0xFFFD, 1};
    value = (value << 6) | (byte(at + i) & 0x3FU);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[size] || value > 0x10FFFF || surrogate) return {0xFFFD, 1};
  return {value, size};
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_letter(uint32_t c) {
  if (c < 0x80) return is_ascii_letter(static_cast<char>(c));
  if (c < 0xC0) return c == 0xAA || c == 0xB5 || c == 0xBA;
  if (c < 0x2B0) return c != 0xD7 && c != 0xF7;
  if (c < 0x370) return false;  // modifiers and combining marks
  if (c < 0x530) return c != 0x37E && c != 0x387 && !(c >= 0x482 && c <= 0x489);
  if (c >= 0x2000 && c < 0x2C00) return (c >= 0x2100 && c < 0x2150);
  if (c >= 0x3000 && c < 0x3005) return false;
  if (c >= 0xE000 && c < 0xF900) return false;
  return c < 0xFE00;
}

std::string_view strip(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const CodePoint c = code_point_at(text, begin);
    if (!is_space(c.value)) break;
    begin += c.size_bytes;
  }
  size_t end = text.size();
  while (end > begin) {
    size_t start = end - 1;  // back over at most 3 continuation bytes
    while (start > begin && end - start < 4 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    const CodePoint c = code_point_at(text, start);
    if (start + c.size_bytes != end || !is_space(c.value)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const uint32_t small = lower_code_point(c.value);
    if (small != c.value) {
      append_utf8(out, small);
    } else {
      out.append(text, i, c.size_bytes);
    }
    i += c.size_bytes;
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  return out.append(text.substr(begin));
}

std::string_view last_code_points(std::string_view text, size_t count) {
  size_t at = text.size();
  for (; count > 0 && at > 0; --count) {
    --at;
    for (int i = 0; i < 3 && at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80; ++i) --at;
  }
  return text.substr(at);
}

std::optional<std::string_view> last_box(std::string_view text) {
  const size_t box = text.rfind("\\boxed");
  if (box == std::string_view::npos) return std::nullopt;
  const size_t begin = box + 7;  // past \boxed{
  if (begin > text.size() || text[begin - 1] != '{') return std::nullopt;
  int64_t depth = 1;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return text.substr(begin, i - begin);
  }
  return std::nullopt;
}

}  // namespace lockstep::tasks
