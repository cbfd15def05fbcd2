// SPDX-License-Identifier: Apache-2.0
// JSON lines: one JSON value a line.
//
// Lines end at \n only (U+2028, U+0085 and form feeds are text); a \r before it is dropped. A byte-order mark
// at the start of the file is dropped. Blank lines hold no record but count as lines. The last line may lack
// its \n. Anything that is no valid JSON or UTF-8 (lone surrogates too) is an error "file:line: reason;
// remedy" - nothing is skipped or repaired.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/value.h"

namespace lockstep::data {

// "path", "path@[a:b]", "path@[a:]", "path@[:b]": records a to b (b not included), counted from 0.
struct DataPath {
  std::string path;
  int64_t begin = 0;
  std::optional<int64_t> end;

  // Refuses negative, reversed, empty or unreadable ranges.
  static Result<DataPath> parse(const std::string& text);
};

struct JsonRecord {
  int64_t line = 0;  // from 1
  int64_t row = 0;   // from 0, among the records of the whole file
  Value value;
};

struct JsonlFile {
  std::string path;
  std::string sha256;  // of the whole file as it is on disk
  int64_t records_in_file = 0;
  std::vector<JsonRecord> records;  // those of the slice
};

// One line and its number to `visit`, blank lines and line ends left out; a byte-order mark is dropped from
// the first. Stops at the first error.
Status for_each_line(std::string_view text,
                     const std::function<Status(int64_t line, std::string_view)>& visit);

// All of it is read and checked, the slice is kept. Errors: also an empty file and a slice that ends beyond
// the records.
Result<JsonlFile> read_jsonl(const std::string& path_and_slice);
// The same for a text; `path` is for messages.
Result<std::vector<JsonRecord>> parse_jsonl(const std::string& path, std::string_view text);

}  // namespace lockstep::data
