// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a Hugging Face folder: byte-level BPE with added tokens, read from tokenizer.json (and
// tokenizer_config.json, chat_template.jinja where there are). Every part of the file that would change ids
// and is not known here is refused by name. A Tokenizer is immutable, cheap to copy, and safe to use from
// many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"

namespace lockstep::data {

class Tokenizer {
 public:
  static Result<Tokenizer> load(const std::string& folder);
  // The same from texts; config_json may be empty. `name` stands for the folder in messages.
  static Result<Tokenizer> parse(const std::string& name, std::string_view tokenizer_json,
                                 std::string_view config_json);

  // Ids of a text, without the tokens a post-processor adds. Bytes that are no UTF-8 are read as U+FFFD
  // (utf8.h). With parse_added_tokens false the texts of added tokens are ordinary text. A byte without a
  // token of its own (a vocabulary made by hand) is left out, as the reference library does:
  // unencodable_byte() tells. A pattern of the file that exceeds the limits of the pattern engine is a
  // failed CHECK here and an error of try_encode.
  std::vector<int32_t> encode(std::string_view text, bool parse_added_tokens = true) const;
  Result<std::vector<int32_t>> try_encode(std::string_view text, bool parse_added_tokens = true) const;
  // encode() with what the post-processor adds (Llama's <|begin_of_text|>), but not a second time when the
  // text itself begins (ends) with it. For text that is not from a chat template.
  Result<std::vector<int32_t>> encode_with_post_processor(std::string_view text) const;
  // try_encode() of a text in which marks break the texts of added tokens that must stay ordinary text. Added
  // tokens are found first; then the ordinary text between them is cut at two marks in a row, single marks
  // are removed, and each part is encoded on its own.
  Result<std::vector<int32_t>> encode_marked(std::string_view text, std::string_view mark) const;
  // The first byte of `text` that no token spells.
  std::optional<uint8_t> unencodable_byte(std::string_view text) const;

  // Bytes of the ids; may end or begin inside a character. Unknown ids give nothing.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special = false) const;
  // The same as text: replace_invalid_utf8() of the bytes.
  std::string decode_text(const std::vector<int32_t>& ids, bool skip_special = false) const;
  std::string token_bytes(int32_t id) const;  // "" for an unknown id
  bool is_known(int32_t id) const;

  int64_t vocab_count() const;  // tokens of the model, added ones apart
  int64_t merges_count() const;
  int64_t added_count() const;
  // 1 + the largest known id. Ids from here on (the padded rows of a model) are never sampled.
  int64_t token_limit() const;
  // The id of an added token's content or of a vocabulary entry as tokenizer.json spells it.
  std::optional<int32_t> token_id(std::string_view content) const;
  bool is_special(int32_t id) const;

  // From tokenizer_config.json; empty where it does not say.
  const std::string& chat_template() const;
  const std::string& chat_template_file() const;  // the file it stands in
  const std::string& eos_token() const;
  const std::string& bos_token() const;
  const std::string& pad_token() const;
  std::optional<int32_t> eos_token_id() const;
  // Named special tokens ("bos_token", its text) as chat templates see them.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const;
  // Begin and end of every place where the text of an added token (special ones only, or all) stands in
  // `text`; places may overlap.
  std::vector<std::pair<size_t, size_t>> added_token_places(std::string_view text, bool special_only) const;
  // Such a token cannot be broken by a mark.
  bool has_one_character_added_token() const;

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep::data
