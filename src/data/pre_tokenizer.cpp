// SPDX-License-Identifier: Apache-2.0
#include "data/pre_tokenizer.h"

#include <utility>

#include "data/unicode.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

// Cuts at the borders of matches; drops what drop_matches asks for.
bool split(const PreTokenizerStep& step, std::string_view text, std::vector<std::string>& pieces) {
  std::vector<std::pair<size_t, size_t>> matches;
  if (!step.pattern.find_all(without_newer_characters(text), matches)) return false;
  const auto emit = [&](size_t begin, size_t end, bool is_match) {
    if (begin == end || (step.drop_matches && is_match != step.invert)) return;
    pieces.emplace_back(text.substr(begin, end - begin));
  };
  size_t at = 0;
  for (const auto& [begin, end] : matches) {
    emit(at, begin, false);
    emit(begin, end, true);
    at = end;
  }
  emit(at, text.size(), false);
  return true;
}

void split_digits(bool individual, std::string_view text, std::vector<std::string>& pieces) {
  size_t begin = 0;
  bool in_digits = false;
  const auto cut = [&](size_t at) {
    if (at > begin) pieces.emplace_back(text.substr(begin, at - begin));
    begin = at;
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    const bool digit = is_numeric(c.code);
    if (digit != in_digits || (digit && individual)) cut(i);
    in_digits = digit;
    i += static_cast<size_t>(c.length_bytes);
  }
  cut(text.size());
}

bool apply(const PreTokenizerStep& step, std::string text, std::vector<std::string>& pieces) {
  switch (step.kind) {
    case PreTokenizerStep::Kind::kSplit:
      return split(step, text, pieces);
    case PreTokenizerStep::Kind::kDigits:
      split_digits(step.individual_digits, text, pieces);
      return true;
    case PreTokenizerStep::Kind::kByteLevel:
      if (step.add_prefix_space && !text.empty() && text[0] != ' ') text.insert(text.begin(), ' ');
      if (step.use_regex) return split(step, text, pieces);
      if (!text.empty()) pieces.push_back(std::move(text));
      return true;
  }
  return false;
}

}  // namespace

Result<Pattern> byte_level_pattern() {
  return Pattern::compile(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                          false);
}

bool pre_tokenize(const std::vector<PreTokenizerStep>& steps, std::string_view text,
                  std::vector<std::string>& pieces) {
  std::vector<std::string> current;
  if (!text.empty()) current.emplace_back(text);
  for (const PreTokenizerStep& step : steps) {
    std::vector<std::string> next;
    next.reserve(current.size());
    for (std::string& piece : current) {
      if (!apply(step, std::move(piece), next)) return false;
    }
    current = std::move(next);
  }
  for (std::string& piece : current) pieces.push_back(std::move(piece));
  return true;
}

}  // namespace lockstep::data
