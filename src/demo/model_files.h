// SPDX-License-Identifier: Apache-2.0
// The demo's model as files: config.json of a small Qwen2 and a byte-level BPE tokenizer in which every word
// of the problems is one token, and so is every digit and sign.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::demo {

// A merge joins two tokens, written as bytes (not in tokenizer.json's alphabet).
struct Merge {
  std::string left;
  std::string right;
};

// Merges under which BPE makes one token of each word and of "####": a word's are a chain from its left,
// words with a leading space first, so that a chain never begins inside another word.
std::vector<Merge> tokenizer_merges();

int64_t tokenizer_size();  // tokens, with the control tokens
std::string tokenizer_json();
std::string tokenizer_config_json();  // with the chat template; <|endoftext|> ends an answer
std::string model_config_json();

}  // namespace lockstep::demo
