// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "core/sha256.h"
#include "same_bits.h"

namespace lockstep::ledger {
namespace {

// In memory where there is such a place: these tests sync hundreds of times.
std::string fast_folder() {
  return is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

numerics::Digest128 digest_of(const std::string& text) {
  return numerics::digest_bytes(text.data(), text.size());
}

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fast_folder() + "lockstep_ledger_" + std::to_string(::getpid());
    ASSERT_TRUE(make_directories(folder_).ok());
    path_ = folder_ + "/" + kLedgerFile;
    header_ = JsonObject()
                  .add("lockstep_ledger", 1)
                  .add("profile", "fp32")
                  .add_json("config", JsonObject().add("lr", 1e-6).add("steps", 4).text())
                  .text();
  }
  void TearDown() override { EXPECT_TRUE(remove_all(folder_).ok()); }

  static LedgerRecord record(int64_t step, const std::string& phase) {
    LedgerRecord r;
    r.step = step;
    r.phase = phase;
    r.digest = digest_of(phase + std::to_string(step));
    if (phase == "weights") r.tensors = {{"a", digest_of("a")}, {"b", digest_of("b")}};
    if (phase == "rewards") r.add("mean", 0.25).add("count", 8).add("name", "x\"y").add("any", true);
    return r;
  }
  // Steps [first, last] of three phases each, one commit a step.
  static void append_steps(LedgerWriter& writer, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      for (const char* phase : {"tokens", "rewards", "weights"}) writer.append(record(step, phase));
      ASSERT_TRUE(writer.commit().ok());
    }
  }
  void write_steps(int64_t last) {
    auto writer = LedgerWriter::create(path_, header_);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    append_steps(writer.value(), 0, last);
  }
  std::string text() { return read_file(path_).value(); }
  void put(const std::string& contents) { ASSERT_TRUE(write_file_atomic(path_, contents).ok()); }
  static std::string refusal(const std::string& text) {
    const auto ledger = parse_ledger("L", text);
    if (ledger.ok()) return "accepted, torn " + std::to_string(ledger.value().truncated_bytes);
    EXPECT_EQ(ledger.status().code(), StatusCode::kInvalid);
    EXPECT_EQ(ledger.status().message().find('\n'), std::string::npos);
    return ledger.status().message();
  }

  std::string folder_, path_, header_;
};

TEST(JsonTextTest, Numbers) {
  EXPECT_EQ(json_text(1e-6), "1e-06");
  EXPECT_EQ(json_text(0.1F), "0.1");
  EXPECT_EQ(json_text(0.98), "0.98");
  EXPECT_EQ(json_text(-0.0), "-0.0");
  EXPECT_EQ(json_text(0.0), "0");
  EXPECT_EQ(json_text(1.0), "1");
  EXPECT_EQ(json_text(std::numeric_limits<double>::denorm_min()), "5e-324");
  EXPECT_EQ(json_text(std::numeric_limits<double>::infinity()), "\"inf\"");
  EXPECT_EQ(json_text(-std::numeric_limits<float>::infinity()), "\"-inf\"");
  EXPECT_EQ(json_text(std::nan("")), "\"nan\"");
  EXPECT_EQ(json_text(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(json_text(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(json_text(true), "true");
  testing::TestRandom random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(random.next());
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(testing::bits_of(std::strtod(json_text(value).c_str(), nullptr)), testing::bits_of(value));
  }
}

TEST(JsonTextTest, StringsAndObjects) {
  EXPECT_EQ(json_text("a\"b\\c\n\x01\xC3\xA4"), "\"a\\\"b\\\\c\\n\\u0001\xC3\xA4\"");
  EXPECT_EQ(json_text("\xFF"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonObject().text(), "{}");
  EXPECT_EQ(JsonObject().add("b", 1).add("a", "x").add_json("c", json_array({"1", "2"})).text(),
            R"({"b":1,"a":"x","c":[1,2]})");
  EXPECT_EQ(json_array({}), "[]");
}

TEST_F(LedgerTest, WritesExactBytes) {
  auto writer = LedgerWriter::create(path_, header_);
  ASSERT_TRUE(writer.ok());
  const LedgerRecord rewards = record(0, "rewards");
  const LedgerRecord weights = record(0, "weights");
  writer.value().append(rewards);
  writer.value().append(weights);
  EXPECT_EQ(text(), header_ + "\n");  // nothing before commit
  ASSERT_TRUE(writer.value().commit().ok());
  const std::string line1 = R"({"step":0,"phase":"rewards","digest":")" + rewards.digest.hex() +
                            R"(","mean":0.25,"count":8,"name":"x\"y","any":true,"prev":")" +
                            sha256_hex(header_) + "\"}";
  const std::string line2 = R"({"step":0,"phase":"weights","digest":")" + weights.digest.hex() +
                            R"(","tensors":{"a":")" + digest_of("a").hex() + R"(","b":")" +
                            digest_of("b").hex() + R"("},"prev":")" + sha256_hex(line1) + "\"}";
  EXPECT_EQ(text(), header_ + "\n" + line1 + "\n" + line2 + "\n");
  EXPECT_EQ(writer.value().last_sha256(), sha256_hex(line2));
  EXPECT_EQ(writer.value().records(), 2);
}

TEST_F(LedgerTest, ReadsBack) {
  write_steps(2);
  const auto ledger = read_ledger(path_);
  ASSERT_TRUE(ledger.ok()) << ledger.status().message();
  EXPECT_EQ(ledger.value().header, header_);
  ASSERT_EQ(ledger.value().records.size(), 9U);
  const LedgerRecord& r = ledger.value().records[4];
  EXPECT_EQ(r.step, 1);
  EXPECT_EQ(r.phase, "rewards");
  EXPECT_EQ(r.digest.hex(), digest_of("rewards1").hex());
  EXPECT_EQ(r.scalars, record(1, "rewards").scalars);
  EXPECT_EQ(ledger.value().records[5].tensors.size(), 2U);
  EXPECT_EQ(ledger.value().truncated_bytes, 0);
  EXPECT_EQ(ledger.value().size_bytes(), static_cast<int64_t>(text().size()));
}

TEST_F(LedgerTest, CreateDoesNotOverwrite) {
  write_steps(0);
  const std::string before = text();
  const auto again = LedgerWriter::create(path_, header_);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), StatusCode::kInvalid);
  EXPECT_EQ(text(), before);
}

// A run cut at any byte goes on to the same file.
TEST_F(LedgerTest, TornAtEveryByteAndGoneOn) {
  write_steps(1);
  const std::string whole = text();
  const auto full = parse_ledger("L", whole).value();
  for (size_t size = header_.size() + 1; size < whole.size(); size += 1 + size % 17) {
    put(whole.substr(0, size));
    const auto torn = read_ledger(path_);
    ASSERT_TRUE(torn.ok()) << size << torn.status().message();
    const auto records = static_cast<int64_t>(torn.value().records.size());
    EXPECT_EQ(torn.value().size_bytes() + torn.value().truncated_bytes, static_cast<int64_t>(size));
    EXPECT_EQ(torn.value().size_bytes(), full.line_end_bytes[static_cast<size_t>(records)]);
    auto writer = LedgerWriter::open_for_append(path_);
    ASSERT_TRUE(writer.ok());
    ASSERT_EQ(writer.value().records(), records);
    for (size_t i = static_cast<size_t>(records); i < full.records.size(); ++i)
      writer.value().append(full.records[i]);
    ASSERT_TRUE(writer.value().commit().ok());
    ASSERT_EQ(text(), whole) << size;
  }
  for (size_t size = 0; size <= header_.size(); ++size) {
    EXPECT_TRUE(has(refusal(whole.substr(0, size)), "not a ledger"));
  }
}

TEST_F(LedgerTest, BrokenLastLineIsTornAnyOtherIsInvalid) {
  write_steps(1);
  const std::string whole = text();
  EXPECT_EQ(refusal(whole + "\n"), "accepted, torn 1");
  EXPECT_EQ(refusal(whole + std::string(5, '\0') + "\n"), "accepted, torn 6");
  EXPECT_EQ(refusal(whole + std::string(5, '\0')), "accepted, torn 5");
  EXPECT_EQ(refusal(whole + "{\"step\":\n"), "accepted, torn 9");
  EXPECT_TRUE(has(refusal(whole + "{\"step\":\n{}\n"), "L:8: not valid JSON"));
  EXPECT_TRUE(has(refusal(whole + "{}\n"), "L:8: the chain is broken"));  // JSON, but not ours
}

// Every single byte matters: a change is found at its line or at the one behind it. (A newline lost before
// the last line makes one broken last line of two: reported as torn.)
TEST_F(LedgerTest, EveryChangedByteIsFound) {
  write_steps(1);
  const std::string whole = text();
  const auto full = parse_ledger("L", whole).value();
  const auto last_line = static_cast<size_t>(full.line_end_bytes[full.line_end_bytes.size() - 2]);
  for (size_t at = 0; at < last_line; ++at) {
    std::string changed = whole;
    changed[at] ^= 1;
    const std::string error = refusal(changed);
    if (at + 1 == last_line) {
      EXPECT_EQ(error,
                "accepted, torn " +
                    std::to_string(whole.size() -
                                   static_cast<size_t>(full.line_end_bytes[full.line_end_bytes.size() - 3])));
    } else {
      EXPECT_TRUE(has(error, "L:")) << at << ": " << error;
    }
  }
}

TEST_F(LedgerTest, LinesLostAddedOrSwapped) {
  write_steps(1);
  const std::string whole = text();
  const auto full = parse_ledger("L", whole).value();
  const auto line = [&](size_t i) {
    const auto begin = static_cast<size_t>(full.line_end_bytes[i - 1]);
    return whole.substr(begin, static_cast<size_t>(full.line_end_bytes[i]) - begin);
  };
  const std::string head = header_ + "\n";
  EXPECT_TRUE(has(refusal(head + line(2) + line(3)), "L:2: the chain is broken"));
  EXPECT_TRUE(has(refusal(head + line(1) + line(1)), "L:3: the chain is broken"));
  EXPECT_TRUE(has(refusal(head + line(1) + line(3) + line(2)), "L:3: the chain is broken"));
}

TEST_F(LedgerTest, MalformedRecords) {
  const std::string prev = R"(,"prev":")" + sha256_hex(header_) + "\"}";
  const std::string zero(32, '0');
  const std::string good = R"({"step":0,"phase":"p","digest":")" + zero + "\"";
  EXPECT_EQ(refusal(header_ + "\n" + good + prev + "\n"), "accepted, torn 0");
  const std::string bad[] = {
      R"({"step":0,"phase":"p","digest":"00")" + prev,
      R"({"step":0,"phase":"p","digest":")" + std::string(32, 'g') + "\"" + prev,
      R"({"step":0,"phase":"p","digest":")" + std::string(32, 'A') + "\"" + prev,
      R"({"step":"0","phase":"p","digest":")" + zero + "\"" + prev,
      R"({"step":0.0,"phase":"p","digest":")" + zero + "\"" + prev,
      R"({"step":99999999999999999999,"phase":"p","digest":")" + zero + "\"" + prev,
      R"({"step":18446744073709551615,"phase":"p","digest":")" + zero + "\"" + prev,
      R"({"phase":"p","step":0,"digest":")" + zero + "\"" + prev,
      R"({"step":0,"phase":"p")" + prev,
      R"({"step": 0,"phase":"p","digest":")" + zero + "\"" + prev,
      good + R"(,"step":0)" + prev,
      good + R"(,"x":[1])" + prev,
      good + R"(,"x":{"y":1})" + prev,
      good + R"(,"tensors":{})" + prev,
      good + R"(,"tensors":{"a":1})" + prev,
      good + R"(,"tensors":{"a":{}})" + prev,
      good + R"(,"tensors":1)" + prev,
      good + R"(,"x":"\u0061")" + prev,
      good + R"(,"x":-0)" + prev,
      "[]",
      "1",
      "null",
      good + prev + " ",
  };
  for (const std::string& line : bad) {
    const std::string error = refusal(header_ + "\n" + line + "\n");
    EXPECT_TRUE(has(error, "L:2: ")) << line << "\n" << error;
  }
  const std::string down =
      R"({"step":-1,"phase":"p","digest":")" + zero + R"(","prev":")" + sha256_hex(good + prev) + "\"}";
  EXPECT_TRUE(
      has(refusal(header_ + "\n" + good + prev + "\n" + down + "\n"), "step -1 stands behind step 0"));
}

TEST_F(LedgerTest, MalformedHeaders) {
  EXPECT_TRUE(has(refusal(R"({"lockstep_ledger":2})"
                          "\n"),
                  "version 2 is not known"));
  for (const std::string& line :
       {std::string("{}"), std::string("[]"), std::string("1"), std::string(""),
        std::string(R"({"a":1,"lockstep_ledger":1})"), std::string("{\"lockstep_ledger\":"),
        std::string("{\"lockstep_ledger\":1}\0", 22),
        R"({"lockstep_ledger":1,"x":)" + std::string(100000, '[') + std::string(100000, ']') + "}"}) {
    EXPECT_TRUE(has(refusal(line + "\n"), "L:1: not a ledger")) << line.substr(0, 100);
  }
}

TEST_F(LedgerTest, HeaderDifference) {
  const std::string a = R"({"lockstep_ledger":1,"config":{"lr":1e-06,"data":["x","y"]}})";
  EXPECT_EQ(header_difference(a, a), "");
  EXPECT_EQ(header_difference(a, R"({"lockstep_ledger":1,"config":{"lr":2e-06,"data":["x","z"]}})"),
            "config.lr: 1e-06 and 2e-06");
  EXPECT_EQ(header_difference(a, R"({"lockstep_ledger":1,"config":{"lr":1e-06,"data":["x","z"]}})"),
            R"(config.data[1]: "y" and "z")");
  EXPECT_EQ(header_difference(a, R"({"lockstep_ledger":1,"config":{"lr":1e-06}})"),
            R"(config.data: ["x","y"] and nothing)");
  EXPECT_EQ(header_difference(a, R"({"lockstep_ledger":1,"config":{"lr":1e-06,"data":["x","y"],"n":null}})"),
            "config.n: nothing and null");
  EXPECT_NE(header_difference(a, R"({"config":{"lr":1e-06,"data":["x","y"]},"lockstep_ledger":1})"), "");
}

TEST_F(LedgerTest, TruncatesToACheckpoint) {
  write_steps(3);
  const std::string whole = text();
  ASSERT_TRUE(truncate_to_records(path_, 6).ok());
  EXPECT_EQ(read_ledger(path_).value().records.size(), 6U);
  auto writer = LedgerWriter::open_for_append(path_);
  ASSERT_TRUE(writer.ok());
  append_steps(writer.value(), 2, 3);
  EXPECT_EQ(text(), whole);
  ASSERT_TRUE(truncate_to_records(path_, 12).ok());
  EXPECT_EQ(text(), whole);
  EXPECT_EQ(truncate_to_records(path_, 13).code(), StatusCode::kInvalid);
  EXPECT_EQ(truncate_to_records(path_, -1).code(), StatusCode::kInvalid);
  EXPECT_EQ(text(), whole);
  put(whole + "torn");
  ASSERT_TRUE(truncate_to_records(path_, 12).ok());
  EXPECT_EQ(text(), whole);
  ASSERT_TRUE(truncate_to_records(path_, 0).ok());
  EXPECT_EQ(text(), header_ + "\n");
}

TEST_F(LedgerTest, FailedWriteIsReportedAndRepaired) {
  write_steps(0);
  const std::string before = text();
  {
    auto writer = LedgerWriter::open_for_append(path_);
    ASSERT_TRUE(writer.ok());
    writer.value().append(record(1, "tokens"));
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit unlimited{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    rlimit limit = unlimited;
    limit.rlim_cur = before.size() + 20;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status status = writer.value().commit();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    std::signal(SIGXFSZ, handler);
    ASSERT_EQ(status.code(), StatusCode::kStopped);
    EXPECT_TRUE(has(status.message(), path_)) << status.message();
  }
  EXPECT_EQ(text().size(), before.size() + 20);
  EXPECT_EQ(read_ledger(path_).value().truncated_bytes, 20);
  ASSERT_TRUE(LedgerWriter::open_for_append(path_).ok());
  EXPECT_EQ(text(), before);
}

}  // namespace
}  // namespace lockstep::ledger
