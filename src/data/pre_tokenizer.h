// SPDX-License-Identifier: Apache-2.0
// The pre_tokenizer of tokenizer.json: cuts normalised text into the pieces that are merged on their own.
// Patterns run in PCRE2 (UTF, Unicode properties, JIT); those written for Oniguruma are translated where the
// two differ, and refused where a translation is not sure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lockstep::data {

// The PCRE2 spelling of an Oniguruma pattern; an error names what is not supported.
Result<std::string> translate_pattern(std::string_view pattern);

// A compiled pattern; matches from one call are found left to right and do not overlap.
class Pattern {
 public:
  // `literal`: the text itself instead of a pattern.
  static Result<Pattern> compile(std::string_view pattern, bool literal);
  // Appends begin and end of every match in `text` (valid UTF-8). False when PCRE2 gave up (its limits).
  bool find_all(std::string_view text, std::vector<std::pair<size_t, size_t>>& matches) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

struct PreTokenizerStep {
  enum class Kind { kSplit, kDigits, kByteLevel };
  Kind kind = Kind::kSplit;
  Pattern pattern;                 // kSplit, and kByteLevel with use_regex
  bool drop_matches = false;       // kSplit: behaviour Removed
  bool invert = false;             // kSplit: what lies between matches counts as the match
  bool individual_digits = false;  // kDigits
  bool add_prefix_space = false;   // kByteLevel
  bool use_regex = false;          // kByteLevel
};

// The pattern of ByteLevel with use_regex: GPT-2's.
Result<Pattern> byte_level_pattern();

// The pieces of `text` (valid UTF-8), in order. False when a pattern gave up.
bool pre_tokenize(const std::vector<PreTokenizerStep>& steps, std::string_view text,
                  std::vector<std::string>& pieces);

}  // namespace lockstep::data
