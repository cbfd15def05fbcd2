// SPDX-License-Identifier: Apache-2.0
// What tokenizer_load.cpp fills and tokenizer.cpp uses.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/pre_tokenizer.h"
#include "data/tokenizer.h"

namespace lockstep::data {

struct Tokenizer::Impl {
  Bpe bpe;
  bool nfc = false;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<AddedToken> added;
  AddedTokenMatcher raw_matcher;                             // tokens with normalized false
  AddedTokenMatcher normalized_matcher;                      // the others; their content is normalised
  AddedTokenMatcher all_matcher;                             // contents as written, for added_token_places
  std::unordered_map<std::string, size_t> added_by_content;  // index into added
  std::vector<std::string> bytes_of_id;
  std::vector<bool> known;
  std::vector<bool> special;
  std::vector<int32_t> prefix;  // what the post-processor puts before and after
  std::vector<int32_t> suffix;
  std::string chat_template;
  std::string chat_template_file;  // it stands in
  std::string eos_token;
  std::string bos_token;
  std::string pad_token;
  std::vector<std::pair<std::string, std::string>> special_tokens;
  bool one_character_added = false;
};

}  // namespace lockstep::data
