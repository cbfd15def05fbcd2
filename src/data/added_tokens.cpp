// SPDX-License-Identifier: Apache-2.0
#include "data/added_tokens.h"

#include <algorithm>
#include <utility>

#include "data/unicode.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

// The character that ends at `end` > 0.
Utf8Char previous_utf8(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return next_utf8(text, begin);
}

}  // namespace

void AddedTokenMatcher::add(AddedToken token) {
  if (token.content.empty()) return;
  auto& bucket = by_first_byte_[static_cast<unsigned char>(token.content[0])];
  const auto place = std::find_if(bucket.begin(), bucket.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  bucket.insert(place, std::move(token));
  ++count_;
}

void AddedTokenMatcher::find(std::string_view text, std::vector<TextSpan>& spans) const {
  size_t done = 0;  // everything before is in spans
  for (size_t i = 0; i < text.size();) {
    const AddedToken* found = nullptr;
    for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[i])]) {
      if (text.substr(i, token.content.size()) == token.content) {
        found = &token;
        break;
      }
    }
    if (found == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i;
    size_t end = i + found->content.size();
    i = end;  // matches do not overlap, also those that the flags reject
    if (found->single_word) {
      const bool word_before = begin > 0 && is_word(previous_utf8(text, begin).code);
      const bool word_after = end < text.size() && is_word(next_utf8(text, end).code);
      if (word_before || word_after) continue;
    }
    if (found->lstrip) {
      while (begin > done) {
        const Utf8Char c = previous_utf8(text, begin);
        if (!c.valid || !is_white(c.code)) break;
        begin -= static_cast<size_t>(c.length_bytes);
      }
    }
    begin = std::max(begin, done);
    if (found->rstrip) {
      while (end < text.size()) {
        const Utf8Char c = next_utf8(text, end);
        if (!c.valid || !is_white(c.code)) break;
        end += static_cast<size_t>(c.length_bytes);
      }
    }
    if (done < begin) spans.push_back({done, begin, -1});
    if (begin < end) spans.push_back({begin, end, found->id});
    done = std::max(done, end);
  }
  if (done < text.size()) spans.push_back({done, text.size(), -1});
}

std::vector<TextSpan> AddedTokenMatcher::occurrences(std::string_view text, bool special_only) const {
  std::vector<TextSpan> places;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[i])]) {
      if (special_only && !token.special) continue;
      if (text.substr(i, token.content.size()) != token.content) continue;
      places.push_back({i, i + token.content.size(), token.id});
      break;
    }
  }
  return places;
}

}  // namespace lockstep::data
