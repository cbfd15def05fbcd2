// SPDX-License-Identifier: Apache-2.0
#include "tasks/f1/f1_grader.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

bool is_ascii_punctuation(uint32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

// A character of a word: articles are whole words only.
bool is_word(uint32_t c) {
  const bool number_sign = c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE);
  return (c < 0x80 && is_digit(static_cast<char>(c))) || is_letter(c) || number_sign;
}

std::string without_punctuation(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (!is_ascii_punctuation(static_cast<uint8_t>(c))) out += c;
  }
  return out;
}

// Tokens between white space, of a text where each article has become a space.
std::vector<std::string> tokens_of(std::string_view text) {
  const std::string plain = without_punctuation(lower(text));
  std::vector<std::string> tokens;
  std::string token;
  const auto finish = [&] {
    if (!token.empty()) tokens.push_back(std::move(token));
    token.clear();
  };
  for (size_t i = 0; i < plain.size();) {
    const size_t begin = i;
    CodePoint c = code_point_at(plain, i);
    if (!is_word(c.value)) {
      i += c.size_bytes;
      if (is_space(c.value)) {
        finish();
      } else {
        token.append(plain, begin, c.size_bytes);
      }
      continue;
    }
    while (i < plain.size() && is_word((c = code_point_at(plain, i)).value)) i += c.size_bytes;
    const std::string_view word = std::string_view(plain).substr(begin, i - begin);
    if (word == "a" || word == "an" || word == "the") {
      finish();
    } else {
      token.append(word);
    }
  }
  finish();
  return tokens;
}

bool is_verdict(const std::vector<std::string>& tokens) {
  return tokens.size() == 1 && (tokens[0] == "yes" || tokens[0] == "no" || tokens[0] == "noanswer");
}

}  // namespace

double grade_f1(std::string_view response, std::string_view label) {
  const std::vector<std::string> given = tokens_of(response);
  const std::vector<std::string> wanted = tokens_of(label);
  if ((is_verdict(given) || is_verdict(wanted)) && given != wanted) return 0;
  std::unordered_map<std::string_view, int64_t> left;
  for (const std::string& token : wanted) ++left[token];
  int64_t same = 0;
  for (const std::string& token : given) {
    const auto found = left.find(token);
    if (found != left.end() && found->second-- > 0) ++same;
  }
  if (same == 0) return 0;
  const double precision = static_cast<double>(same) / static_cast<double>(given.size());
  const double recall = static_cast<double>(same) / static_cast<double>(wanted.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace lockstep::tasks
