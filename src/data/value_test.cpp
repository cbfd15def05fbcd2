// SPDX-License-Identifier: Apache-2.0
#include "data/value.h"

#include <gtest/gtest.h>

#include "data/utf8.h"
#include "same_bits.h"

namespace lockstep::data {
namespace {

std::string json_error(const std::string& text) {
  const Result<Value> result = parse_json(text);
  return result.ok() ? "no error" : result.status().message();
}

TEST(Json, ReadsAndWritesInOrder) {
  const Value value =
      parse_json(R"({"b":[1,-2,3.5,true,null],"a":{"x":"é\u00e9\ud83d\ude00"},"b":7})").value();
  EXPECT_EQ(to_json(value), "{\"b\": 7, \"a\": {\"x\": \"\xC3\xA9\xC3\xA9\xF0\x9F\x98\x80\"}}");
  EXPECT_EQ(to_compact_json(parse_json("[1, {\"a\" : [] }]").value()), "[1,{\"a\":[]}]");
  EXPECT_EQ(to_json(parse_json("[9223372036854775807,9223372036854775808,1.0,1e400]").ok()
                        ? Value::none()
                        : parse_json("[9223372036854775807,9223372036854775808,1.0]").value()),
            "[9223372036854775807, 9.223372036854776e+18, 1.0]");
}

// Case T08: none of these may pass, whatever the caller does with the message.
TEST(Json, RefusesWhatIsNoJson) {
  for (const std::string& text :
       {std::string("\"\\ud800\""), std::string("\"\xC3\x28\""), std::string("\"\xFF\""),
        std::string("\"\xED\xA0\x80\""), std::string("\"\xF0\x9F\x98\""), std::string("{\"a\":1"),
        std::string("{} x"), std::string("1\0 2", 4), std::string("\xEF\xBB\xBF{}"), std::string("[NaN]"),
        std::string("{'a':1}"), std::string("[1,]"), std::string(""), std::string("\"a\nb\"")}) {
    const std::string error = json_error(text);
    EXPECT_EQ(error.substr(0, 15), "not valid JSON:") << text;
    EXPECT_FALSE(find_invalid_utf8(error)) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_NE(json_error(std::string(200000, '[')).find("nested deeper"), std::string::npos);
}

TEST(Json, ManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i)
    text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i % 500) + "\":" + std::to_string(i);
  const Value value = parse_json(text + "}").value();
  EXPECT_EQ(value.as_map().size(), 500U);
  EXPECT_EQ(value.find("k0")->as_int(), 500);
  EXPECT_EQ(value.find("k499")->as_int(), 999);
  EXPECT_EQ(value.as_map().entries()[3].first, "k3");
}

TEST(Utf8, EverySequenceOfTwoAndSomeOfFour) {
  // Whatever the bytes are: pieces tile the text, and the repaired text is valid and stable.
  testing::TestRandom random(7);
  const unsigned char some[] = {0x41, 0x80, 0xBF, 0xC1, 0xC2, 0xE0, 0xA0, 0xED,
                                0x9F, 0xEF, 0xF0, 0x90, 0xF4, 0x8F, 0xF5, 0xFF};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    const int64_t length = random.below(7);
    for (int64_t i = 0; i < length; ++i) text += static_cast<char>(some[random.below(16)]);
    const std::string repaired = replace_invalid_utf8(text);
    EXPECT_FALSE(find_invalid_utf8(repaired));
    EXPECT_EQ(repaired == text, !find_invalid_utf8(text));
    Utf8Stream stream;
    std::string joined;
    for (const char c : text) {
      const std::string piece = stream.push(std::string(1, c));
      EXPECT_FALSE(find_invalid_utf8(piece));
      joined += piece;
    }
    EXPECT_EQ(joined + stream.finish(), repaired);
  }
  // The maximal subparts of Unicode's own example.
  EXPECT_EQ(replace_invalid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                                 "b\x80"
                                 "c\x80\xBF"
                                 "d"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c\xEF\xBF\xBD\xEF\xBF\xBD"
            "d");
}

}  // namespace
}  // namespace lockstep::data
