// SPDX-License-Identifier: Apache-2.0
#include "data/bpe.h"

#include <algorithm>
#include <utility>

#include "data/utf8.h"

namespace lockstep::data {
namespace {

// Printable bytes stand for themselves, the other 68 for U+0100 and on, in order.
bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct ByteAlphabet {
  std::array<char32_t, 256> code_of{};
  std::array<int, 512> byte_of{};

  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t code = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      code_of[static_cast<size_t>(byte)] = code;
      byte_of[code] = byte;
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet instance;
  return instance;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

size_t slot_of(uint64_t pair, size_t mask) {
  pair *= 0x9E3779B97F4A7C15ULL;
  return static_cast<size_t>(pair >> 32) & mask;
}

struct Symbol {
  int32_t id;
  int previous;
  int next;
};

// A merge that was possible when it was queued; ordered by rank, then place.
struct Candidate {
  int32_t rank;
  int left;
  int32_t left_id;
  int32_t right_id;
  int32_t id;
  bool operator<(const Candidate& other) const {  // for a heap with the least on top
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const Utf8Char c = next_utf8(spelling, i);
    if (!c.valid || c.code >= alphabet().byte_of.size() || alphabet().byte_of[c.code] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte_of[c.code]));
    i += static_cast<size_t>(c.length_bytes);
  }
  return bytes;
}

std::string spelling_of_byte(uint8_t byte) {
  std::string out;
  append_utf8(out, alphabet().code_of[byte]);
  return out;
}

void Bpe::add_token(std::string spelling, int32_t id) {
  if (const auto bytes = bytes_of_spelling(spelling); bytes && !bytes->empty()) {
    if (bytes->size() == 1) byte_id_[static_cast<uint8_t>((*bytes)[0])] = id;
    if (whole_words_first_) id_of_bytes_.emplace(*bytes, id);
  }
  id_of_.emplace(std::move(spelling), id);
}

bool Bpe::add_merge(std::string_view left, std::string_view right) {
  const auto left_id = id_of_spelling(left);
  const auto right_id = id_of_spelling(right);
  std::string join(left);
  const auto id = id_of_spelling(join.append(right));
  if (!left_id || !right_id || !id) return false;
  pending_.push_back({pair_key(*left_id, *right_id), static_cast<int32_t>(merges_count_), *id});
  ++merges_count_;
  return true;
}

void Bpe::finish_merges() {
  size_t size = 16;
  while (size < pending_.size() * 2) size *= 2;
  slots_.assign(size, {});
  for (const Merge& merge : pending_) {
    size_t slot = slot_of(merge.pair, size - 1);
    while (slots_[slot].pair != UINT64_MAX && slots_[slot].pair != merge.pair) slot = (slot + 1) & (size - 1);
    slots_[slot] = merge;  // a pair that is listed twice has its last rank, as in the reference library
  }
  pending_ = {};
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(pair, mask);; slot = (slot + 1) & mask) {
    if (slots_[slot].pair == pair) return &slots_[slot];
    if (slots_[slot].pair == UINT64_MAX) return nullptr;
  }
}

std::optional<int32_t> Bpe::id_of_spelling(std::string_view spelling) const {
  const auto it = id_of_.find(spelling);
  if (it == id_of_.end()) return std::nullopt;
  return it->second;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (whole_words_first_) {
    const auto it = id_of_bytes_.find(piece);
    if (it != id_of_bytes_.end()) {
      ids.push_back(it->second);
      return;
    }
  }
  static thread_local std::vector<Symbol> symbols;
  static thread_local std::vector<Candidate> heap;
  symbols.clear();
  heap.clear();
  for (const char c : piece) {
    const int32_t id = byte_id_[static_cast<uint8_t>(c)];
    if (id == kNone) continue;
    const int n = static_cast<int>(symbols.size());
    symbols.push_back({id, n - 1, n + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  const auto queue = [&](int left) {
    if (left < 0) return;
    const int right = symbols[static_cast<size_t>(left)].next;
    if (right < 0) return;
    const int32_t left_id = symbols[static_cast<size_t>(left)].id;
    const int32_t right_id = symbols[static_cast<size_t>(right)].id;
    const Merge* merge = find_merge(left_id, right_id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, left, left_id, right_id, merge->id});
    std::push_heap(heap.begin(), heap.end());
  };
  for (int i = 0; i + 1 < static_cast<int>(symbols.size()); ++i) queue(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(top.left)];
    if (left.id != top.left_id || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != top.right_id) continue;
    left.id = top.id;
    right.id = kNone;  // gone; candidates that start here are stale
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.left;
    queue(left.previous);
    queue(top.left);
  }
  for (int i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    ids.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace lockstep::data
