// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/log.h"
#include "core/sha256.h"

namespace lockstep::ledger {
namespace {

constexpr std::string_view kFixedKeys[] = {"step", "phase", "digest", "tensors", "prev"};

Status truncate_file(const std::string& path, int64_t size_bytes) {
  if (::truncate(path.c_str(), static_cast<off_t>(size_bytes)) != 0) {
    return stopped("{}: cannot cut to {} bytes: {}", path, size_bytes, std::strerror(errno));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path, /*append=*/true));
  return file.close();  // with fsync
}

}  // namespace

std::string record_line(const LedgerRecord& record, std::string_view previous_sha256) {
  JsonObject line;
  line.add("step", record.step).add("phase", record.phase).add("digest", record.digest.hex());
  for (const auto& [name, json] : record.scalars) {
    LOCKSTEP_CHECK(std::find(std::begin(kFixedKeys), std::end(kFixedKeys), name) == std::end(kFixedKeys),
                   name);
    line.add_json(name, json);
  }
  if (!record.tensors.empty()) {
    JsonObject tensors;
    for (const auto& [name, digest] : record.tensors) tensors.add(name, digest.hex());
    line.add_json("tensors", tensors.text());
  }
  return line.add("prev", previous_sha256).text();
}

Result<LedgerWriter> LedgerWriter::create(const std::string& path, const std::string& header_json) {
  if (path_exists(path)) {
    return invalid("{}: is there already; go on with it (--load) or name another run folder", path);
  }
  const std::string line = header_json + "\n";
  LOCKSTEP_CHECK(parse_ledger(path, line).ok(), "malformed ledger header: " + header_json);
  // Under its name only when whole: a file whose header is torn could not be gone on with.
  LOCKSTEP_RETURN_IF_ERROR(write_file_atomic(path, line));
  return open_for_append(path);
}

Result<LedgerWriter> LedgerWriter::open_for_append(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Ledger ledger, read_ledger(path));
  if (ledger.truncated_bytes > 0) {
    log_warn("{}: the last line was cut off after {} bytes; it is removed", path, ledger.truncated_bytes);
    LOCKSTEP_RETURN_IF_ERROR(truncate_to_records(path, static_cast<int64_t>(ledger.records.size())));
  }
  LedgerWriter writer;
  LOCKSTEP_ASSIGN_OR_RETURN(writer.file_, FileWriter::open(path, /*append=*/true));
  writer.last_sha256_ = ledger.last_sha256;
  writer.records_ = static_cast<int64_t>(ledger.records.size());
  writer.last_step_ = ledger.records.empty() ? INT64_MIN : ledger.records.back().step;
  return writer;
}

void LedgerWriter::append(const LedgerRecord& record) {
  LOCKSTEP_CHECK(record.step >= last_step_, "ledger steps go down");
  const std::string line = record_line(record, last_sha256_);
  pending_ += line;
  pending_ += '\n';
  last_sha256_ = sha256_hex(line);
  last_step_ = record.step;
  ++records_;
}

Status LedgerWriter::commit() {
  if (pending_.empty()) return ok_status();
  // After an error the text stays pending, but the file may hold a part of it: the run has to stop.
  LOCKSTEP_RETURN_IF_ERROR(file_.write(pending_));
  LOCKSTEP_RETURN_IF_ERROR(file_.sync());
  pending_.clear();
  return ok_status();
}

Status truncate_to_records(const std::string& path, int64_t records) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Ledger ledger, read_ledger(path));
  const auto found = static_cast<int64_t>(ledger.records.size());
  if (records < 0 || records > found) {
    return invalid("{}: has {} records, {} are wanted: the ledger is older than the checkpoint", path, found,
                   records);
  }
  if (records == found && ledger.truncated_bytes == 0) return ok_status();
  return truncate_file(path, ledger.line_end_bytes[static_cast<size_t>(records)]);
}

}  // namespace lockstep::ledger
