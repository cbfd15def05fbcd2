// SPDX-License-Identifier: Apache-2.0
// Added tokens: texts with an id of their own, found before the text is cut and merged.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // a control token; left out where decoding skips these
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // only where neither neighbour is a word character
  bool normalized = false;   // looked for in normalised text instead of raw
};

// A piece of text: an added token (id >= 0) or ordinary text (id < 0).
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  // Tokens with an empty content are never found.
  void add(AddedToken token);
  bool empty() const { return count_ == 0; }
  // Cuts `text` at every token: from the left, at each place the longest. Spans are in order and not empty;
  // blanks taken by lstrip and rstrip belong to the token's span.
  void find(std::string_view text, std::vector<TextSpan>& spans) const;
  // Every place where some token's content stands (the longest there), flags left aside, overlapping ones
  // too.
  std::vector<TextSpan> occurrences(std::string_view text, bool special_only) const;

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
  int64_t count_ = 0;
};

}  // namespace lockstep::data
