// SPDX-License-Identifier: Apache-2.0
// Reading of the ledger. Each line is parsed and then written again from what was understood: a line that
// comes out otherwise (a key twice, a space, another order) is not one of ours.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/bytes.h"
#include "core/sha256.h"
#include "ledger/ledger.h"

namespace lockstep::ledger {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kMaxHeaderDepth = 16;

// 32 lower-case digits, the high word first, as Digest128::hex writes them.
std::optional<numerics::Digest128> parse_digest(std::string_view hex) {
  const std::optional<std::string> bytes = from_hex(hex);
  if (!bytes || bytes->size() != 16) return std::nullopt;
  numerics::Digest128 digest;
  for (size_t i = 0; i < 8; ++i) {
    digest.hi = digest.hi << 8 | static_cast<unsigned char>((*bytes)[i]);
    digest.lo = digest.lo << 8 | static_cast<unsigned char>((*bytes)[8 + i]);
  }
  return digest;
}

// Parses one record line. Floats keep the text they have in the line.
class RecordEvents final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(json_text(value)); }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 1 && key_ == "step" && value <= INT64_MAX)
      return number_integer(static_cast<int64_t>(value));
    return scalar(std::to_string(value));
  }
  bool number_integer(number_integer_t value) override {
    if (depth_ != 1 || key_ != "step") return scalar(std::to_string(value));
    record_.step = value;
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2) {
      const auto digest = parse_digest(value);
      if (!digest) return refuse(fmt::format("tensors: {} must have 32 hexadecimal digits", json_text(key_)));
      record_.tensors.emplace_back(key_, *digest);
      return true;
    }
    if (key_ == "phase") {
      record_.phase = value;
    } else if (key_ == "digest") {
      const auto digest = parse_digest(value);
      if (!digest) return refuse("digest must have 32 hexadecimal digits");
      record_.digest = *digest;
    } else if (key_ == "prev") {
      prev_ = value;
    } else {
      return scalar(json_text(value));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 1 && key_ != "tensors")
      return refuse(fmt::format("{} must not be an object", json_text(key_)));
    if (depth_ == 2) return refuse("tensors must hold digests");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override { return refuse("an array has no place in a record"); }
  bool end_array() override { return true; }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    broken_json_ = true;
    return refuse(fmt::format("not valid JSON at byte {} of the line", position));
  }

  const std::string& error() const { return error_; }
  bool broken_json() const { return broken_json_; }
  LedgerRecord& record() { return record_; }
  const std::string& prev() const { return prev_; }

 private:
  bool refuse(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }
  bool scalar(std::string json) {
    if (depth_ == 0) return refuse("must be an object");
    if (depth_ == 2) return refuse("tensors must hold digests");
    if (is_fixed_key(key_)) return refuse(fmt::format("{} has a value of the wrong kind", json_text(key_)));
    record_.scalars.emplace_back(key_, std::move(json));
    return true;
  }
  static bool is_fixed_key(std::string_view key) {
    return key == "step" || key == "phase" || key == "digest" || key == "tensors" || key == "prev";
  }

  int depth_ = 0;
  std::string key_;
  LedgerRecord record_;
  std::string prev_;
  std::string error_;
  bool broken_json_ = false;
};

Status check_header(const std::string& path, std::string_view line) {
  bool too_deep = false;  // what compares headers goes down by recursion
  const auto watch = [&](int depth, OrderedJson::parse_event_t, OrderedJson&) {
    too_deep = too_deep || depth > kMaxHeaderDepth;
    return !too_deep;
  };
  const bool zero = line.find('\0') != std::string_view::npos;  // the parser would stop there
  const OrderedJson header = OrderedJson::parse(line.begin(), line.end(), watch, false);
  if (zero || too_deep || !header.is_object() || header.empty() ||
      header.begin().key() != "lockstep_ledger") {
    return invalid(
        "{}:1: not a ledger: line 1 must be an object that begins with \"lockstep_ledger\" (a run's other "
        ".jsonl files are plain JSON lines: docs/formats.md)",
        path);
  }
  if (header.begin().value() != kLedgerVersion) {
    return invalid("{}:1: ledger version {} is not known (this release reads {})", path,
                   header.begin().value().dump(-1, ' ', false, OrderedJson::error_handler_t::replace),
                   kLedgerVersion);
  }
  return ok_status();
}

// *broken_json: the line is no JSON at all, as after a crash, and not merely a wrong one.
Status parse_record(const std::string& where, std::string_view line, const std::string& previous_sha256,
                    int64_t previous_step, LedgerRecord* record, bool* broken_json) {
  RecordEvents events;
  // The parser takes a zero byte for the end of its input.
  const bool zero = line.find('\0') != std::string_view::npos;
  *broken_json = zero;
  if (zero || !Json::sax_parse(line.begin(), line.end(), &events)) {
    *broken_json = *broken_json || events.broken_json();
    return invalid("{}: {}", where, zero ? "holds a zero byte" : events.error());
  }
  if (events.prev() != previous_sha256) {
    return invalid(
        "{}: the chain is broken: prev must be {} (the SHA-256 of the line before), found {}; a line "
        "was changed, lost or added",
        where, previous_sha256, json_text(events.prev()));
  }
  if (record_line(events.record(), events.prev()) != line) {
    return invalid("{}: is not in the form Lockstep writes (docs/formats.md)", where);
  }
  if (events.record().step < previous_step) {
    return invalid("{}: step {} stands behind step {}", where, events.record().step, previous_step);
  }
  *record = std::move(events.record());
  return ok_status();
}

// Depth-first in the order of `a`; keys that only `b` has come last.
std::string first_difference(const std::string& place, const OrderedJson& a, const OrderedJson& b) {
  const auto text = [](const OrderedJson& value) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  };
  const auto inside = [&](const std::string& key) { return place.empty() ? key : place + "." + key; };
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items()) {
      const auto other = b.find(key);
      if (other == b.end()) return fmt::format("{}: {} and nothing", inside(key), text(value));
      std::string found = first_difference(inside(key), value, *other);
      if (!found.empty()) return found;
    }
    for (const auto& [key, value] : b.items()) {
      if (a.find(key) == a.end()) return fmt::format("{}: nothing and {}", inside(key), text(value));
    }
    return "";
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) {
      std::string found = first_difference(fmt::format("{}[{}]", place, i), a[i], b[i]);
      if (!found.empty()) return found;
    }
    return "";
  }
  if (text(a) == text(b)) return "";
  return fmt::format("{}: {} and {}", place, text(a), text(b));
}

}  // namespace

Result<Ledger> parse_ledger(const std::string& path, std::string_view text) {
  Ledger ledger;
  ledger.path = path;
  int64_t begin = 0;
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t number = 1; begin < size; ++number) {
    const size_t newline = text.find('\n', static_cast<size_t>(begin));
    const bool torn = newline == std::string_view::npos;
    const int64_t end = torn ? size : static_cast<int64_t>(newline) + 1;
    const std::string_view line =
        text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin - (torn ? 0 : 1)));
    if (torn) {
      ledger.truncated_bytes = size - begin;
      break;
    }
    if (number == 1) {
      LOCKSTEP_RETURN_IF_ERROR(check_header(path, line));
      ledger.header = std::string(line);
    } else {
      LedgerRecord record;
      bool broken_json = false;
      const int64_t previous_step = ledger.records.empty() ? INT64_MIN : ledger.records.back().step;
      const Status status = parse_record(fmt::format("{}:{}", path, number), line, ledger.last_sha256,
                                         previous_step, &record, &broken_json);
      if (!status.ok() && broken_json && end == size) {
        ledger.truncated_bytes = size - begin;
        break;
      }
      LOCKSTEP_RETURN_IF_ERROR(status);
      ledger.records.push_back(std::move(record));
    }
    ledger.last_sha256 = sha256_hex(line);
    ledger.line_end_bytes.push_back(end);
    begin = end;
  }
  if (ledger.line_end_bytes.empty()) {
    return invalid("{}: not a ledger: {}", path, text.empty() ? "the file is empty" : "line 1 has no end");
  }
  return ledger;
}

Result<Ledger> read_ledger(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_ledger(path, text);
}

std::string header_difference(const std::string& a, const std::string& b) {
  if (a == b) return "";
  const OrderedJson left = OrderedJson::parse(a, nullptr, false);
  const OrderedJson right = OrderedJson::parse(b, nullptr, false);
  const std::string found = first_difference("", left, right);
  return found.empty() ? "the order or the spelling of the fields" : found;
}

}  // namespace lockstep::ledger
