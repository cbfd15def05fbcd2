// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.h"

#include <algorithm>

#include "core/check.h"
#include "data/tokenizer_impl.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

bool starts_with_ids(const std::vector<int32_t>& ids, const std::vector<int32_t>& part) {
  return ids.size() >= part.size() && std::equal(part.begin(), part.end(), ids.begin());
}

bool ends_with_ids(const std::vector<int32_t>& ids, const std::vector<int32_t>& part) {
  return ids.size() >= part.size() && std::equal(part.rbegin(), part.rend(), ids.rbegin());
}

std::string without(std::string_view text, std::string_view mark) {
  std::string out;
  while (true) {
    const size_t at = mark.empty() ? std::string_view::npos : text.find(mark);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + mark.size());
  }
}

class Encoder {
 public:
  Encoder(const Tokenizer::Impl& impl, std::string_view mark) : impl_(impl), mark_(mark) {}

  Status encode(std::string_view text, bool parse_added) {
    if (!parse_added || impl_.raw_matcher.empty()) return normalised(text, parse_added);
    std::vector<TextSpan> spans;
    impl_.raw_matcher.find(text, spans);
    for (const TextSpan& span : spans) {
      if (span.id >= 0) {
        ids.push_back(span.id);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(normalised(text.substr(span.begin, span.end - span.begin), parse_added));
      }
    }
    return ok_status();
  }

  std::vector<int32_t> ids;

 private:
  // The mark is no character of any composition, so normalising around it changes only what it separates;
  // that is composed below, once the marks are gone.
  Status normalised(std::string_view raw, bool parse_added) {
    const std::string text = normal_form(raw);
    if (!parse_added || impl_.normalized_matcher.empty()) return pieces(text);
    std::vector<TextSpan> spans;
    impl_.normalized_matcher.find(text, spans);
    for (const TextSpan& span : spans) {
      if (span.id >= 0) {
        ids.push_back(span.id);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(pieces(std::string_view(text).substr(span.begin, span.end - span.begin)));
      }
    }
    return ok_status();
  }

  Status pieces(std::string_view marked) {
    if (mark_.empty()) return plain(marked);
    const std::string cut = mark_ + mark_;
    while (true) {
      const size_t at = marked.find(cut);
      LOCKSTEP_RETURN_IF_ERROR(plain(normal_form(without(marked.substr(0, at), mark_))));
      if (at == std::string_view::npos) return ok_status();
      marked.remove_prefix(at + cut.size());
    }
  }

  Status plain(std::string_view text) {
    std::vector<std::string> parts;
    if (!pre_tokenize(impl_.pre_tokenizer, text, parts)) {
      return invalid("the tokenizer's pattern gave up on a text of {} bytes (limits of PCRE2); shorten it",
                     text.size());
    }
    for (const std::string& part : parts) impl_.bpe.encode(part, ids);
    return ok_status();
  }

  std::string normal_form(std::string_view text) const {
    return impl_.nfc ? to_nfc(text) : std::string(text);
  }

  const Tokenizer::Impl& impl_;
  std::string mark_;
};

Result<std::vector<int32_t>> encode_text(const Tokenizer::Impl& impl, std::string_view text, bool parse_added,
                                         std::string_view mark) {
  std::string repaired;
  if (find_invalid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  Encoder encoder(impl, mark);
  LOCKSTEP_RETURN_IF_ERROR(encoder.encode(text, parse_added));
  return std::move(encoder.ids);
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_added_tokens) const {
  return try_encode(text, parse_added_tokens).value();
}

Result<std::vector<int32_t>> Tokenizer::try_encode(std::string_view text, bool parse_added_tokens) const {
  return encode_text(*impl_, text, parse_added_tokens, {});
}

Result<std::vector<int32_t>> Tokenizer::encode_marked(std::string_view text, std::string_view mark) const {
  return encode_text(*impl_, text, true, mark);
}

Result<std::vector<int32_t>> Tokenizer::encode_with_post_processor(std::string_view text) const {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int32_t> ids, try_encode(text));
  if (!starts_with_ids(ids, impl_->prefix)) {
    ids.insert(ids.begin(), impl_->prefix.begin(), impl_->prefix.end());
  }
  if (!ends_with_ids(ids, impl_->suffix)) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::optional<uint8_t> Tokenizer::unencodable_byte(std::string_view text) const {
  std::array<bool, 256> missing{};
  bool any = false;
  for (int byte = 0; byte < 256; ++byte) {
    missing[static_cast<size_t>(byte)] = !impl_->bpe.has_byte(static_cast<uint8_t>(byte));
    any = any || missing[static_cast<size_t>(byte)];
  }
  if (!any) return std::nullopt;
  std::vector<TextSpan> spans;
  impl_->all_matcher.find(text, spans);
  for (const TextSpan& span : spans) {
    if (span.id >= 0) continue;
    const std::string piece = to_nfc(text.substr(span.begin, span.end - span.begin));
    for (const char c : piece) {
      if (missing[static_cast<uint8_t>(c)]) return static_cast<uint8_t>(c);
    }
  }
  return std::nullopt;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids) {
    if (!is_known(id) || (skip_special && is_special(id))) continue;
    out += impl_->bytes_of_id[static_cast<size_t>(id)];
  }
  return out;
}

std::string Tokenizer::decode_text(const std::vector<int32_t>& ids, bool skip_special) const {
  return replace_invalid_utf8(decode(ids, skip_special));
}

std::string Tokenizer::token_bytes(int32_t id) const {
  return is_known(id) ? impl_->bytes_of_id[static_cast<size_t>(id)] : std::string();
}

bool Tokenizer::is_known(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < impl_->known.size() && impl_->known[static_cast<size_t>(id)];
}

int64_t Tokenizer::vocab_count() const {
  return impl_->bpe.vocab_count();
}
int64_t Tokenizer::merges_count() const {
  return impl_->bpe.merges_count();
}
int64_t Tokenizer::added_count() const {
  return static_cast<int64_t>(impl_->added.size());
}
int64_t Tokenizer::token_limit() const {
  return static_cast<int64_t>(impl_->known.size());
}

std::optional<int32_t> Tokenizer::token_id(std::string_view content) const {
  const auto it = impl_->added_by_content.find(std::string(content));
  if (it != impl_->added_by_content.end()) return impl_->added[it->second].id;
  return impl_->bpe.id_of_spelling(content);
}

bool Tokenizer::is_special(int32_t id) const {
  return is_known(id) && impl_->special[static_cast<size_t>(id)];
}

const std::string& Tokenizer::chat_template_file() const {
  return impl_->chat_template_file;
}

const std::string& Tokenizer::chat_template() const {
  return impl_->chat_template;
}
const std::string& Tokenizer::eos_token() const {
  return impl_->eos_token;
}
const std::string& Tokenizer::bos_token() const {
  return impl_->bos_token;
}
const std::string& Tokenizer::pad_token() const {
  return impl_->pad_token;
}
std::optional<int32_t> Tokenizer::eos_token_id() const {
  if (impl_->eos_token.empty()) return std::nullopt;
  return token_id(impl_->eos_token);
}
const std::vector<std::pair<std::string, std::string>>& Tokenizer::special_tokens() const {
  return impl_->special_tokens;
}
std::vector<std::pair<size_t, size_t>> Tokenizer::added_token_places(std::string_view text,
                                                                     bool special_only) const {
  std::vector<std::pair<size_t, size_t>> places;
  for (const TextSpan& span : impl_->all_matcher.occurrences(text, special_only)) {
    places.emplace_back(span.begin, span.end);
  }
  return places;
}
bool Tokenizer::has_one_character_added_token() const {
  return impl_->one_character_added;
}

}  // namespace lockstep::data
