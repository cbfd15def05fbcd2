// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include <gtest/gtest.h>

#include "data/data_test_support.h"
#include "data/prompts.h"

namespace lockstep::data {
namespace {

using testing::large_test_data;

std::string error_of(const std::string& path) {
  const auto file = read_jsonl(path);
  return file.ok() ? "no error" : file.status().message();
}

PromptData gsm8k(const std::string& path) {
  PromptDataOptions options;
  options.path = path;
  auto data = load_prompts(options);
  EXPECT_TRUE(data.ok()) << data.status().message();
  return std::move(data).value();
}

// Case I01.
TEST(Jsonl, LinesEndAtNewlinesOnly) {
  const std::string path = large_test_data("gsm8k/train.jsonl");
  const PromptData original = gsm8k(path);
  EXPECT_EQ(original.rows.size(), 7473U);
  EXPECT_NE(original.rows[2381].columns_json.find("\xE2\x80\xA8"), std::string::npos);

  // All escapes spelled as raw UTF-8, U+2028 too.
  std::string raw;
  for (const PromptRow& row : original.rows) raw += row.columns_json + "\n";
  const PromptData rewritten = gsm8k(write_temporary("raw.jsonl", raw));
  EXPECT_EQ(rewritten.rows.size(), 7473U);
  EXPECT_EQ(rewritten.records_sha256, original.records_sha256);
  EXPECT_NE(rewritten.file_sha256, original.file_sha256);

  raw +=
      "{\"question\":\"a\xC2\x85"
      "b\xE2\x80\xA9"
      "c\\u000bd\",\"answer\":\"#### 1\"}\n";
  const PromptData longer = gsm8k(write_temporary("longer.jsonl", raw));
  EXPECT_EQ(longer.rows.size(), 7474U);
  EXPECT_EQ(longer.rows.back().prompt,
            "a\xC2\x85"
            "b\xE2\x80\xA9"
            "c\x0B"
            "d");
}

// Case I02.
TEST(Jsonl, ByteOrderMark) {
  for (const int count : {3, 8}) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "{\"prompt\":\"p" + std::to_string(i) + "\"}\n";
    const PromptData without = gsm8k(write_temporary("no_bom.jsonl", text));
    const PromptData with = gsm8k(write_temporary("bom.jsonl", "\xEF\xBB\xBF" + text));
    EXPECT_EQ(with.rows.size(), static_cast<size_t>(count));
    EXPECT_EQ(with.records_sha256, without.records_sha256);
    EXPECT_EQ(with.rows[0].columns_json, without.rows[0].columns_json);
  }
  const std::string path = write_temporary("late_bom.jsonl", "{}\n\xEF\xBB\xBF{}\n");
  EXPECT_NE(error_of(path).find(":2: not valid JSON: byte 1: a byte-order mark"), std::string::npos);
}

TEST(Jsonl, BlankLinesAndLineEnds) {
  const std::string path = write_temporary("blank.jsonl", "\n{\"a\":1}\r\n \t\r\n\r\n{\"a\":2}");
  const JsonlFile file = read_jsonl(path).value();
  ASSERT_EQ(file.records.size(), 2U);
  EXPECT_EQ(file.records[0].line, 2);
  EXPECT_EQ(file.records[1].line, 5);
  EXPECT_EQ(file.records[1].row, 1);
}

// Case T08.
TEST(Jsonl, BrokenLinesAreNamed) {
  const auto broken = [](const std::string& line) {
    return error_of(
        write_temporary("broken.jsonl", "{\"prompt\":\"ok\"}\n\n" + line + "\n{\"prompt\":\"ok\"}\n"));
  };
  const std::string path = write_temporary("broken.jsonl", "");
  for (const char* bytes : {"\xC3\x28", "\xFF", "\xED\xA0\x80", "\xF0\x9F\x98"}) {
    EXPECT_EQ(broken("{\"prompt\":\"" + std::string(bytes) + "\"}"),
              path + ":3: byte 12 is no UTF-8; re-encode the file");
  }
  const std::string surrogate = broken("{\"prompt\":\"\\ud800\"}");
  EXPECT_EQ(surrogate.substr(0, path.size() + 20), path + ":3: not valid JSON: ");
  EXPECT_NE(surrogate.find("surrogate"), std::string::npos) << surrogate;
  EXPECT_EQ(broken("{\"prompt\":").substr(0, path.size() + 20), path + ":3: not valid JSON: ");
}

TEST(Jsonl, Slices) {
  const std::string path = write_temporary("slice.jsonl", "0\n1\n\n2\n3\n");
  const auto values = [&](const std::string& slice) {
    const auto file = read_jsonl(path + slice);
    if (!file.ok()) return std::string("error");
    EXPECT_EQ(file.value().records_in_file, 4);
    std::string out;
    for (const JsonRecord& record : file.value().records) {
      EXPECT_EQ(record.row, record.value.as_int());
      out += to_json(record.value);
    }
    return out;
  };
  EXPECT_EQ(values(""), "0123");
  EXPECT_EQ(values("@[1:3]"), "12");
  EXPECT_EQ(values("@[2:]"), "23");
  EXPECT_EQ(values("@[:1]"), "0");
  EXPECT_EQ(values("@[:]"), "0123");
  EXPECT_EQ(values("@[0:4]"), "0123");
  for (const char* nonsense : {"@[1:1]", "@[3:1]", "@[0:5]", "@[4:]", "@[-1:2]", "@[a:b]", "@[1]", "@[]",
                               "@[1:2:3]", "@[1 : 2]", "@[0:99999999999999999999]"}) {
    EXPECT_EQ(values(nonsense), "error") << nonsense;
  }
}

TEST(Jsonl, OtherFormatsAreNamed) {
  EXPECT_NE(error_of(write_temporary("x.parquet", "PAR1\x15\x04")).find("is a Parquet file; convert it"),
            std::string::npos);
  EXPECT_NE(error_of(write_temporary("x.gz", "\x1f\x8b\x08")).find("is compressed by gzip"),
            std::string::npos);
}

// Case P07.
TEST(Jsonl, NoRecordIsAnError) {
  EXPECT_NE(error_of(write_temporary("empty.jsonl", "")).find("holds no record"), std::string::npos);
  EXPECT_NE(error_of(write_temporary("blanks.jsonl", "\n \n")).find("holds no record"), std::string::npos);
  EXPECT_NE(error_of("/nowhere/x.jsonl"), "no error");
}

}  // namespace
}  // namespace lockstep::data
