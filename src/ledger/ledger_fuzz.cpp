// SPDX-License-Identifier: Apache-2.0
// libFuzzer: a ledger of any bytes. What is accepted must be the text that its records are written as. Since
// no fuzzer finds a SHA-256, every "@" in the input stands for the hash of the line before it.
#include <cstdlib>

#include "core/sha256.h"
#include "ledger/ledger.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

std::string with_hashes(std::string_view input) {
  std::string text;
  std::string line;
  std::string previous;
  for (const char c : input) {
    if (c == '@') {
      line += previous;
    } else if (c == '\n') {
      text += line + '\n';
      previous = lockstep::sha256_hex(line);
      line.clear();
    } else {
      line += c;
    }
  }
  return text + line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ledger = lockstep::ledger;
  const std::string text = with_hashes({reinterpret_cast<const char*>(data), size});
  const auto parsed = ledger::parse_ledger("fuzz", text);
  if (!parsed.ok()) {
    require(parsed.status().code() == lockstep::StatusCode::kInvalid);
    require(parsed.status().message().find('\n') == std::string::npos);
    return 0;
  }
  std::string line = parsed.value().header;
  std::string again = line + '\n';
  for (const ledger::LedgerRecord& record : parsed.value().records) {
    line = ledger::record_line(record, lockstep::sha256_hex(line));
    again += line + '\n';
  }
  require(again == text.substr(0, static_cast<size_t>(parsed.value().size_bytes())));
  require(again.size() + static_cast<size_t>(parsed.value().truncated_bytes) == text.size());
  ledger::header_difference(parsed.value().header, R"({"lockstep_ledger":1,"a":{"b":[1]}})");
  return 0;
}
