// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/sha256.h"
#include "data/data_test_support.h"
#include "data/utf8.h"
#include "data/value.h"

namespace lockstep::data {
namespace {

using testing::large_test_data;
using testing::test_data;
using Ids = std::vector<int32_t>;

std::vector<Value> rows_of(const std::string& path) {
  const std::string text = read_file(path).value();
  std::vector<Value> rows;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    rows.push_back(parse_json(std::string_view(text).substr(at, end - at)).value());
    at = end + 1;
  }
  return rows;
}

TEST(Tokenizer, EveryGoldenRow) {
  const auto rows = rows_of(test_data("golden/tokenize.jsonl"));
  ASSERT_EQ(rows.size(), 40U);
  for (const Value& row : rows) {
    const std::string& text = row.find("text")->as_string();
    Ids want;
    for (const Value& id : row.find("ids")->as_list()) want.push_back(static_cast<int32_t>(id.as_int()));
    EXPECT_EQ(qwen().encode(text), want) << text;
    EXPECT_EQ(qwen().decode(want), text == "e\xCC\x81 vs \xC3\xA9" ? "\xC3\xA9 vs \xC3\xA9" : text);
  }
}

std::pair<int64_t, std::string> hash_of_gsm8k(const std::string& file) {
  Sha256 hash;
  int64_t count = 0;
  for (const Value& row : rows_of(large_test_data("gsm8k/" + file))) {
    for (const char* key : {"question", "answer"}) {
      const Ids ids = qwen().encode(row.find(key)->as_string());
      hash.update(ids.data(), ids.size() * sizeof(int32_t));
      count += static_cast<int64_t>(ids.size());
    }
  }
  return {count, hash.hex()};
}

TEST(Tokenizer, Gsm8kTest) {
  const auto [count, hash] = hash_of_gsm8k("test.jsonl");
  EXPECT_EQ(count, 244625);
  EXPECT_EQ(hash, "52bf84727b3d6e9f95ddb1b97bcfcc17e8bca8976fcbab756d95326586399b23");
}

TEST(Tokenizer, Gsm8kTrain) {
  const auto [count, hash] = hash_of_gsm8k("train.jsonl");
  EXPECT_EQ(count, 1355905);
  EXPECT_EQ(hash, "8d84dbc0a64585a6677175630dcc85df8d7b342057511adde2915a22fd3ee943");
}

// Case T01.
TEST(Tokenizer, CodeSignsAndDigits) {
  EXPECT_EQ(qwen().encode("->"), (Ids{405}));
  EXPECT_EQ(qwen().encode("(x):\n"), (Ids{2075, 982}));
  EXPECT_EQ(qwen().encode("12345"), (Ids{16, 17, 18, 19, 20}));
  EXPECT_EQ(qwen().encode("1,080"), (Ids{16, 11, 15, 23, 15}));
  EXPECT_EQ(qwen().encode("don't"), (Ids{15007, 944}));
  EXPECT_EQ(qwen().encode("DON'T"), (Ids{84641, 17323}));
  EXPECT_EQ(qwen().encode("hello\r\n"), (Ids{14990, 319}));
}

// Case T03.
TEST(Tokenizer, Blanks) {
  EXPECT_EQ(qwen().encode("hello"), (Ids{14990}));
  EXPECT_EQ(qwen().encode(" hello"), (Ids{23811}));
  EXPECT_EQ(qwen().encode("  hello"), (Ids{220, 23811}));
  EXPECT_EQ(qwen().encode("   hello"), (Ids{256, 23811}));
  EXPECT_EQ(qwen().encode("hello "), (Ids{14990, 220}));
  EXPECT_EQ(qwen().encode("hello  "), (Ids{14990, 256}));
  EXPECT_EQ(qwen().encode("hello\n"), (Ids{14990, 198}));
  EXPECT_EQ(qwen().encode("hello\n\n"), (Ids{14990, 271}));
  EXPECT_EQ(qwen().encode("hello \n"), (Ids{14990, 715}));
  EXPECT_EQ(qwen().encode("\t\tx"), (Ids{197, 10225}));
  EXPECT_EQ(qwen().encode(""), (Ids{}));
}

// Case T06, the counts.
TEST(Tokenizer, Counts) {
  EXPECT_EQ(qwen().vocab_count(), 151643);
  EXPECT_EQ(qwen().merges_count(), 151387);
  EXPECT_EQ(qwen().added_count(), 22);
  EXPECT_EQ(qwen().token_limit(), 151665);
  EXPECT_FALSE(qwen().is_known(151665));
  EXPECT_EQ(qwen().token_bytes(151935), "");
  EXPECT_EQ(qwen().eos_token(), "<|im_end|>");
  EXPECT_EQ(qwen().eos_token_id(), 151645);
  EXPECT_EQ(qwen().pad_token(), "<|endoftext|>");
  EXPECT_EQ(qwen().bos_token(), "");
  EXPECT_TRUE(qwen().is_special(151645));
  EXPECT_FALSE(qwen().is_special(151657));
  EXPECT_FALSE(qwen().is_special(5));
}

// Case T09.
TEST(Tokenizer, StreamedCharacters) {
  const Ids texts[] = {
      {9284, 104, 254}, {123918, 250}, {82912, 246}, {64, 9284, 104, 254, 151645, 123918, 250}};
  for (const Ids& ids : texts) {
    Utf8Stream stream;
    std::string joined;
    for (const int32_t id : ids) joined += stream.push(qwen().token_bytes(id));
    joined += stream.finish();
    EXPECT_EQ(joined, qwen().decode(ids));
    EXPECT_EQ(joined, qwen().decode_text(ids));
    EXPECT_EQ(joined.find("\xEF\xBF\xBD"), std::string::npos);
  }
  EXPECT_EQ(qwen().decode({9284, 104, 254}), "\xF0\x9F\xAB\xA0");
  // An end inside a character is one U+FFFD, streamed or not.
  Utf8Stream cut;
  std::string joined = cut.push(qwen().token_bytes(9284));
  joined += cut.push(qwen().token_bytes(104));
  joined += cut.finish();
  EXPECT_EQ(joined, "\xEF\xBF\xBD");
  EXPECT_EQ(joined, qwen().decode_text({9284, 104}));
}

// Case T11.
TEST(Tokenizer, SpecialTokensAndNearMisses) {
  EXPECT_EQ(qwen().encode("a<|im_end|>b"), (Ids{64, 151645, 65}));
  EXPECT_EQ(qwen().encode(" <|im_end|> "), (Ids{220, 151645, 220}));
  EXPECT_EQ(qwen().encode("<|im_end"), (Ids{27, 91, 318, 6213}));
  EXPECT_EQ(qwen().encode("<tool_call>"), (Ids{151657}));
  EXPECT_EQ(qwen().encode("<|endoftext|>"), (Ids{151643}));
  EXPECT_EQ(qwen().encode("<|im_end|>", false), (Ids{27, 91, 318, 6213, 91, 29}));
}

// Case T08: bytes that are no UTF-8 are read as U+FFFD, one for each maximal part.
TEST(Tokenizer, InvalidUtf8) {
  for (const char* bad : {"a\xC3\x28", "\xFF", "\xED\xA0\x80", "x\xF0\x9F\x98"}) {
    EXPECT_EQ(qwen().encode(bad), qwen().encode(replace_invalid_utf8(bad)));
  }
}

TEST(Tokenizer, DecodesWhatItEncodes) {
  // Text of characters that NFC leaves alone, from all over the code space.
  testing::TestRandom random(11);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const int64_t length = random.below(60);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t kind = random.below(5);
      append_utf8(text, static_cast<char32_t>(kind < 2   ? random.below(0x80)
                                              : kind < 3 ? 0x4E00 + random.below(0x4000)
                                              : kind < 4 ? 0x1F300 + random.below(0x300)
                                                         : 0x20 + random.below(0x60)));
    }
    EXPECT_EQ(qwen().decode(qwen().encode(text)), text);
  }
}

TEST(Tokenizer, LongRunsOfOneKind) {
  for (const char* unit : {"a", " ", "\n", "!", "1", "\xE4\xB8\xAD", "<", "ab "}) {
    std::string text;
    for (int i = 0; i < 50000; ++i) text += unit;
    EXPECT_EQ(qwen().decode(qwen().encode(text)), text) << unit;
  }
}

TEST(Tokenizer, MissingFolder) {
  const auto result = Tokenizer::load("/nowhere");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(),
            "/nowhere: there is no tokenizer.json here; name the model's Hugging Face folder");
}

}  // namespace
}  // namespace lockstep::data
