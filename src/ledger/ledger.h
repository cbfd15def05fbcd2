// SPDX-License-Identifier: Apache-2.0
// The run record: run/ledger.jsonl (docs/formats.md). Line 1 is the identity of the run; each further line is
// one phase of one step and carries the SHA-256 of the line before it. Nothing in it depends on when, where
// or on what machine the run went.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/status.h"
#include "ledger/json_text.h"
#include "numerics/digest.h"

namespace lockstep::ledger {

inline constexpr const char* kLedgerFile = "ledger.jsonl";
inline constexpr int64_t kLedgerVersion = 1;  // the header begins {"lockstep_ledger":1

struct LedgerRecord {
  int64_t step = 0;
  std::string
      phase;  // prompts, tokens, logprobs, rewards, advantages, gradients, weights, optimizer, eval, ...
  numerics::Digest128 digest;
  // Small values, in the order of the line: name and JSON text (json_text.h).
  std::vector<std::pair<std::string, std::string>> scalars;
  // Digests of single tensors, by name in byte order; may be empty.
  std::vector<std::pair<std::string, numerics::Digest128>> tensors;

  template <typename T>
  LedgerRecord& add(std::string_view name, const T& value) {
    scalars.emplace_back(name, json_text(value));
    return *this;
  }
};

// The line without its newline. CHECKs that scalars do not take the names of the fixed keys.
std::string record_line(const LedgerRecord& record, std::string_view previous_sha256);

struct Ledger {
  std::string path;
  std::string header;  // line 1
  std::vector<LedgerRecord> records;
  std::vector<int64_t> line_end_bytes;  // of the header and of every record, newline included
  std::string last_sha256;              // of the last line
  int64_t truncated_bytes = 0;          // of a last line that was cut off in a crash; not part of the above

  int64_t size_bytes() const { return line_end_bytes.back(); }
};

// Checks form and chain. A last line without newline or that is not JSON is left out and counted in
// truncated_bytes; any other fault is kInvalid and names the line.
Result<Ledger> read_ledger(const std::string& path);
// The same of text in memory; `path` is only named.
Result<Ledger> parse_ledger(const std::string& path, std::string_view text);

// The first field in which two headers differ: "config.lr: 1e-06 and 2e-06"; "" when they are equal.
std::string header_difference(const std::string& a, const std::string& b);

class LedgerWriter {
 public:
  // `header_json` as JsonObject writes it, first key "lockstep_ledger". kInvalid when the file is there.
  static Result<LedgerWriter> create(const std::string& path, const std::string& header_json);
  // Reads and checks the file, cuts a torn last line, and goes on behind the last record.
  static Result<LedgerWriter> open_for_append(const std::string& path);

  // Kept in memory until commit. Steps never go down (CHECK).
  void append(const LedgerRecord& record);
  // Writes what was appended and syncs once.
  Status commit();

  const std::string& last_sha256() const { return last_sha256_; }
  // Records in the file and appended.
  int64_t records() const { return records_; }

 private:
  FileWriter file_;
  std::string pending_;
  std::string last_sha256_;
  int64_t last_step_ = 0;
  int64_t records_ = 0;
};

// Cuts the file back to its first `records` records (and a torn last line). kInvalid when there are fewer.
Status truncate_to_records(const std::string& path, int64_t records);

}  // namespace lockstep::ledger
