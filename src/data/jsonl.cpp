// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include <algorithm>
#include <charconv>

#include "core/file.h"
#include "core/sha256.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// A number of a slice; none when it is left out.
Result<std::optional<int64_t>> slice_number(std::string_view digits, const std::string& text) {
  if (digits.empty()) return std::optional<int64_t>();
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0) {
    return invalid("{}: '{}' is no record number; write path@[a:b] with 0 <= a < b", text, digits);
  }
  return std::optional<int64_t>(value);
}

}  // namespace

Result<DataPath> DataPath::parse(const std::string& text) {
  DataPath result{text, 0, std::nullopt};
  const size_t at = text.rfind("@[");
  if (at == std::string::npos || text.back() != ']') {
    if (text.empty()) return invalid("the path of the data is empty");
    return result;
  }
  const std::string_view range = std::string_view(text).substr(at + 2, text.size() - at - 3);
  const size_t colon = range.find(':');
  if (at == 0 || colon == std::string_view::npos) {
    return invalid("{}: not a slice; write path@[a:b], path@[a:] or path@[:b]", text);
  }
  result.path = text.substr(0, at);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto begin, slice_number(range.substr(0, colon), text));
  LOCKSTEP_ASSIGN_OR_RETURN(result.end, slice_number(range.substr(colon + 1), text));
  result.begin = begin.value_or(0);
  if (result.end && *result.end <= result.begin) {
    return invalid("{}: the slice holds no record; write path@[a:b] with a < b", text);
  }
  return result;
}

Status for_each_line(std::string_view text, const std::function<Status(int64_t, std::string_view)>& visit) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (is_blank(line)) continue;
    LOCKSTEP_RETURN_IF_ERROR(visit(number, line));
  }
  return ok_status();
}

Result<std::vector<JsonRecord>> parse_jsonl(const std::string& path, std::string_view text) {
  std::vector<JsonRecord> records;
  LOCKSTEP_RETURN_IF_ERROR(for_each_line(text, [&](int64_t line, std::string_view content) {
    if (const auto bad = find_invalid_utf8(content)) {
      return invalid("{}:{}: byte {} is no UTF-8; re-encode the file", path, line, *bad + 1);
    }
    Result<Value> value = parse_json(content);
    if (!value.ok()) {
      return invalid("{}:{}: {}; each line must be one JSON object", path, line, value.status().message());
    }
    records.push_back({line, static_cast<int64_t>(records.size()), std::move(value).value()});
    return ok_status();
  }));
  return records;
}

Result<JsonlFile> read_jsonl(const std::string& path_and_slice) {
  LOCKSTEP_ASSIGN_OR_RETURN(const DataPath wanted, DataPath::parse(path_and_slice));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, read_file(wanted.path));
  if (text.compare(0, 4, "PAR1") == 0) {
    return invalid(
        "{}: is a Parquet file; convert it to JSON lines, for example with pandas: "
        "read_parquet(...).to_json(..., orient='records', lines=True)",
        wanted.path);
  }
  if (text.compare(0, 2, "\x1f\x8b") == 0)
    return invalid("{}: is compressed by gzip; unpack it", wanted.path);
  JsonlFile file;
  file.path = wanted.path;
  file.sha256 = sha256_hex(text);
  LOCKSTEP_ASSIGN_OR_RETURN(file.records, parse_jsonl(wanted.path, text));
  file.records_in_file = static_cast<int64_t>(file.records.size());
  if (file.records.empty())
    return invalid("{}: holds no record; it needs one JSON object a line", wanted.path);
  const int64_t end = wanted.end.value_or(file.records_in_file);
  if (wanted.begin >= file.records_in_file || end > file.records_in_file) {
    return invalid("{}: the slice goes beyond the {} records of the file", path_and_slice,
                   file.records_in_file);
  }
  file.records.erase(file.records.begin() + end, file.records.end());
  file.records.erase(file.records.begin(), file.records.begin() + wanted.begin);
  return file;
}

}  // namespace lockstep::data
