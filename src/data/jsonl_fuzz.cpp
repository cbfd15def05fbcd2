// SPDX-License-Identifier: Apache-2.0
// A JSONL text: whatever is accepted reads back the same after it is written.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "data/jsonl.h"
#include "data/utf8.h"
#include "data/value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto path = DataPath::parse(input);
  if (path.ok()) LOCKSTEP_CHECK(!path.value().end || *path.value().end > path.value().begin, "slice");
  const auto records = parse_jsonl("fuzz", input);
  if (!records.ok()) {
    LOCKSTEP_CHECK(records.status().message().find('\n') == std::string::npos, "one line an error");
    return 0;
  }
  std::string written;
  for (const JsonRecord& record : records.value()) written += to_compact_json(record.value) + "\n";
  LOCKSTEP_CHECK(!find_invalid_utf8(written), "written text is no UTF-8");
  const auto again = parse_jsonl("fuzz", written);
  LOCKSTEP_CHECK(again.ok(), again.ok() ? "" : again.status().message());
  LOCKSTEP_CHECK(again.value().size() == records.value().size(), "records");
  for (size_t i = 0; i < again.value().size(); ++i) {
    LOCKSTEP_CHECK(to_compact_json(again.value()[i].value) == to_compact_json(records.value()[i].value),
                   "record");
  }
  return 0;
}
