// SPDX-License-Identifier: Apache-2.0
#include "loop/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "core/bytes.h"

namespace lockstep::loop {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? (c >> 1) ^ 0x82F63B78U : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// Protocol buffers: a key is field*8 + wire type; 0 varint, 1 64 bits, 2 length and bytes, 5 32 bits.
constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kBytes = 2;
constexpr int kFixed32 = 5;

void put_varint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
void put_key(int field, int type, std::string* out) {
  put_varint(static_cast<uint64_t>(field) * 8 + static_cast<uint64_t>(type), out);
}
template <typename T>
void put_raw(T value, std::string* out) {
  char bytes[sizeof(T)];
  store_le(bytes, value);
  out->append(bytes, sizeof(T));
}
void put_bytes(int field, std::string_view bytes, std::string* out) {
  put_key(field, kBytes, out);
  put_varint(bytes.size(), out);
  out->append(bytes);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event_head(double wall_time, int64_t step) {
  std::string out;
  put_key(1, kFixed64, &out);
  put_raw(wall_time, &out);
  put_key(2, kVarint, &out);
  put_varint(static_cast<uint64_t>(step), &out);
  return out;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string event_frame(std::string_view event) {
  std::string out;
  put_raw(static_cast<uint64_t>(event.size()), &out);
  put_raw(masked_crc(out), &out);
  out.append(event);
  put_raw(masked_crc(event), &out);
  return out;
}

std::string scalar_event(double wall_time, int64_t step,
                         const std::vector<std::pair<std::string, float>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;  // Summary.Value: tag = 1, simple_value = 2
    put_bytes(1, tag, &entry);
    put_key(2, kFixed32, &entry);
    put_raw(value, &entry);
    put_bytes(1, entry, &summary);
  }
  std::string out = event_head(wall_time, step);
  put_bytes(5, summary, &out);
  return out;
}

Result<EventFile> EventFile::create(const std::string& folder, int64_t first_step) {
  LOCKSTEP_RETURN_IF_ERROR(make_directories(folder));
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  const double now = now_seconds();
  const std::string name = fmt::format("events.out.tfevents.{:.0f}.{}.{}.v2", now, host, ::getpid());
  EventFile out;
  LOCKSTEP_ASSIGN_OR_RETURN(out.file_, FileWriter::open(join_path(folder, name)));
  std::string version = event_head(now, 0);
  put_bytes(3, "brain.Event:2", &version);
  LOCKSTEP_RETURN_IF_ERROR(out.file_.write(event_frame(version)));
  std::string start = event_head(now, first_step);
  std::string session;  // SessionLog: status = 1, START = 1
  put_key(1, kVarint, &session);
  put_varint(1, &session);
  put_bytes(7, session, &start);
  LOCKSTEP_RETURN_IF_ERROR(out.file_.write(event_frame(start)));
  return out;
}

Status EventFile::add(int64_t step, const std::vector<std::pair<std::string, float>>& scalars) {
  return file_.write(event_frame(scalar_event(now_seconds(), step, scalars)));
}

}  // namespace lockstep::loop
