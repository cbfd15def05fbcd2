// SPDX-License-Identifier: Apache-2.0
// Byte-level byte-pair encoding: vocabulary, merges, and the merging of one piece.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/status.h"

namespace lockstep::data {

// tokenizer.json spells bytes as printable characters ("Ġ" for a space). The bytes of such a spelling; none
// when a character stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);
// The spelling of one byte.
std::string spelling_of_byte(uint8_t byte);

class Bpe {
 public:
  static constexpr int32_t kNone = -1;

  void reserve(size_t tokens) { id_of_.reserve(tokens); }
  // Ids are below 2^20 (checked by the caller) and used once each.
  void add_token(std::string spelling, int32_t id);
  // After all tokens. Merges in order of rank; false when left, right or their join is no token.
  bool add_merge(std::string_view left, std::string_view right);
  void finish_merges();
  void set_whole_words_first(bool on) { whole_words_first_ = on; }

  // Appends the ids of a piece of text: always the pair of the lowest rank first, the leftmost of equals.
  // Bytes without a token of their own are left out.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

  int64_t vocab_count() const { return static_cast<int64_t>(id_of_.size()); }
  int64_t merges_count() const { return merges_count_; }
  std::optional<int32_t> id_of_spelling(std::string_view spelling) const;
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using IdByText = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;
  const IdByText& tokens() const { return id_of_; }
  bool has_byte(uint8_t byte) const { return byte_id_[byte] != kNone; }

 private:
  struct Merge {
    uint64_t pair = UINT64_MAX;  // left << 32 | right; all ones: empty slot
    int32_t rank = 0;
    int32_t id = kNone;
  };
  const Merge* find_merge(int32_t left, int32_t right) const;

  IdByText id_of_;        // by spelling
  IdByText id_of_bytes_;  // whole_words_first_ only
  std::array<int32_t, 256> byte_id_ = filled();
  std::vector<Merge> pending_;  // as read; then moved into slots_
  std::vector<Merge> slots_;    // open addressing, a power of two
  int64_t merges_count_ = 0;
  bool whole_words_first_ = false;

  static std::array<int32_t, 256> filled() {
    std::array<int32_t, 256> ids{};
    ids.fill(kNone);
    return ids;
  }
};

}  // namespace lockstep::data
