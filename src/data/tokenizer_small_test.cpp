// SPDX-License-Identifier: Apache-2.0
// Small tokenizers made here: flags of added tokens, spellings of merges, post-processors, refusals. Expected
// ids were confirmed with the reference library (tokenizers 0.23).
#include <gtest/gtest.h>

#include "data/bpe.h"
#include "data/chat.h"
#include "data/pre_tokenizer.h"
#include "data/tokenizer.h"
#include "data/value.h"

namespace lockstep::data {
namespace {

using Ids = std::vector<int32_t>;

struct Small {
  std::string added = "[]";
  std::string merges = R"(["H e","l l","He ll","Hell o","Ġ Hello"])";
  std::string normalizer = "null";
  std::string pre_tokenizer =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model_more;  // further keys of the model, each with a comma behind
  std::string config;

  // Bytes have the ids 0 to 255; He 256, ll 257, Hell 258, Hello 259, " Hello" 260.
  std::string json() const {
    std::string vocab;
    for (int byte = 0; byte < 256; ++byte) {
      ValueMap entry;
      entry.set(spelling_of_byte(static_cast<uint8_t>(byte)), Value::integer(byte));
      const std::string text = to_compact_json(Value::map(entry));
      vocab += text.substr(1, text.size() - 2) + ",";
    }
    vocab += R"("He":256,"ll":257,"Hell":258,"Hello":259,"ĠHello":260)";
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added +
           R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":)" + post_processor + R"(,"decoder":)" + decoder +
           R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,)" + model_more + R"("vocab":{)" +
           vocab + R"(},"merges":)" + merges + "}}";
  }
  Result<Tokenizer> load() const { return Tokenizer::parse("small", json(), config); }
  Tokenizer tokenizer() const {
    auto result = load();
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::move(result).value();
  }
  std::string error() const {
    const auto result = load();
    return result.ok() ? "no error" : result.status().message();
  }
};

std::string added_token(const std::string& content, int id, const std::string& flags) {
  return R"({"id":)" + std::to_string(id) + R"(,"content":")" + content + R"(",)" + flags + "}";
}

Ids bytes(const std::string& text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Case T05.
TEST(AddedTokens, Flags) {
  Small small;
  small.added = "[" + added_token("<|u|>", 261, R"("rstrip":true,"special":true)") + "," +
                added_token("<|l|>", 262, R"("lstrip":true,"special":true)") + "," +
                added_token("<|w|>", 263, R"("single_word":true,"special":true)") + "]";
  const Tokenizer t = small.tokenizer();
  EXPECT_EQ(t.encode("<|u|>Hello"), (Ids{261, 259}));
  EXPECT_EQ(t.encode("<|u|>  Hello"), (Ids{261, 259}));
  EXPECT_EQ(t.encode("Hello  <|l|>"), (Ids{259, 262}));
  EXPECT_EQ(t.encode("x<|w|>y"), bytes("x<|w|>y"));
  EXPECT_EQ(t.encode("x <|w|> y"), bytes("x ") + Ids{263} + bytes(" y"));
  EXPECT_EQ(t.encode("<|w|>"), (Ids{263}));
  EXPECT_EQ(t.encode("\xC3\xA9<|w|>"), bytes("\xC3\xA9<|w|>"));
  // Blanks between go to the first that can take them.
  EXPECT_EQ(t.encode("<|u|> \xE2\x80\x83\n<|l|>"), (Ids{261, 262}));
  EXPECT_EQ(t.encode("<|u|><|u|> <|l|> <|l|>"), (Ids{261, 261, 262, 262}));
  EXPECT_EQ(t.encode("  <|l|>"), (Ids{262}));
  EXPECT_EQ(t.decode(t.encode("<|u|>  Hello")), "<|u|>Hello");
  EXPECT_EQ(t.decode(t.encode("<|u|>  Hello"), true), "Hello");
  EXPECT_EQ(t.encode("<|u|>  Hello", false), bytes("<|u|> ") + Ids{260});
}

TEST(AddedTokens, LongestAtTheFirstPlace) {
  Small small;
  small.added = "[" + added_token("ab", 261, R"("normalized":false)") + "," +
                added_token("abc", 262, R"("normalized":false)") + "," +
                added_token("bcd", 263, R"("normalized":false)") + "]";
  const Tokenizer t = small.tokenizer();
  EXPECT_EQ(t.encode("abcd"), (Ids{262, 'd'}));
  EXPECT_EQ(t.encode("abbcd"), (Ids{261, 263}));
  EXPECT_EQ(t.token_limit(), 264);
  EXPECT_FALSE(t.is_special(262));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalisedText) {
  Small small;
  small.normalizer = R"({"type":"NFC"})";
  small.added = "[" + added_token("e\xCC\x81!", 261, R"("normalized":true)") + "," +
                added_token("e\xCC\x81?", 262, R"("normalized":false)") + "]";
  const Tokenizer t = small.tokenizer();
  EXPECT_EQ(t.encode("\xC3\xA9!"), (Ids{261}));
  EXPECT_EQ(t.encode("e\xCC\x81!"), (Ids{261}));
  EXPECT_EQ(t.encode("\xC3\xA9?"), bytes("\xC3\xA9?"));
  EXPECT_EQ(t.encode("e\xCC\x81?"), (Ids{262}));
}

// Case T06.
TEST(Merges, BothSpellings) {
  const Tokenizer lines = Small().tokenizer();
  Small pairs;
  pairs.merges = R"([["H","e"],["l","l"],["He","ll"],["Hell","o"],["Ġ","Hello"]])";
  const Tokenizer t = pairs.tokenizer();
  for (const char* text : {"Hello Hello", "HHeelllloo", " Hell", ""})
    EXPECT_EQ(t.encode(text), lines.encode(text));
  EXPECT_EQ(t.encode("Hello Hello"), (Ids{259, 260}));
  EXPECT_EQ(t.vocab_count(), 261);
  EXPECT_EQ(t.merges_count(), 5);
  EXPECT_EQ(lines.merges_count(), 5);
  // A part with a blank can be written as a pair only; byte-level text never holds one, so it merges nothing.
  Small blank;
  blank.added = "[]";
  blank.merges = R"([["H","e"],["a ","b"]])";
  EXPECT_NE(blank.error().find("merge 1 ('a ' and 'b'): a part or their join is no token"),
            std::string::npos);
  std::string json = Small().json();
  json.insert(json.find("\"He\":256"), "\"a \":261,\"a b\":262,");
  json.replace(json.find("[\"H e\""), 6, "[[\"a \",\"b\"],\"H e\"");
  const auto with_blank = Tokenizer::parse("small", json, "");
  ASSERT_TRUE(with_blank.ok()) << with_blank.status().message();
  EXPECT_EQ(with_blank.value().encode("a b Hello"), lines.encode("a b Hello"));
  EXPECT_EQ(with_blank.value().merges_count(), 6);
  EXPECT_EQ(with_blank.value().token_bytes(262), "a b");
}

TEST(Merges, LowestRankThenLeftmost) {
  Small small;
  small.merges = R"(["l l","H e"])";
  EXPECT_EQ(small.tokenizer().encode("lllHelll"), (Ids{257, 'l', 256, 257, 'l'}));
}

TEST(Model, IgnoreMerges) {
  Small small;
  small.merges = "[]";
  EXPECT_EQ(small.tokenizer().encode("Hello"), bytes("Hello"));
  small.model_more = R"("ignore_merges":true,)";
  EXPECT_EQ(small.tokenizer().encode("Hello He Hellos"), (Ids{259}) + bytes(" He") + bytes(" Hellos"));
}

TEST(PreTokenizer, ByteLevelAlone) {
  Small small;
  small.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false})";
  EXPECT_EQ(small.tokenizer().encode("Hello"), (Ids{260}));
  EXPECT_EQ(small.tokenizer().encode(" Hello"), (Ids{260}));
  small.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
                        R"({"type":"Split","pattern":{"String":"l"},"behavior":"Removed","invert":false},)"
                        R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  EXPECT_EQ(small.tokenizer().encode("Hello12"), (Ids{256}) + bytes("o12"));
}

// White space as Oniguruma has it: U+0085 is, U+180E and U+200B are not.
TEST(PreTokenizer, WhiteSpaceOfPatterns) {
  const std::string translated = translate_pattern(R"(\s+(?!\S)|[^\s\p{L}]+|\w)").value();
  EXPECT_EQ(translated.find("\\s"), std::string::npos);
  const Pattern pattern = Pattern::compile(R"(\s+)", false).value();
  std::vector<std::pair<size_t, size_t>> matches;
  ASSERT_TRUE(
      pattern.find_all("a\xC2\x85"
                       "b\xE1\xA0\x8E"
                       "c\xE2\x80\x8B"
                       "d\xE3\x80\x80",
                       matches));
  EXPECT_EQ(matches, (std::vector<std::pair<size_t, size_t>>{{1, 3}, {12, 15}}));
  for (const char* refused : {"^a", "a$", "[[:alpha:]]", "[a&&b]", "\\h+", "\\bx", "(?<n>a)", "a{2}+",
                              "a{,3}", "a*", "(?m:a)", "[", "", "\\", "\\p{L", "(*UCP)a"}) {
    EXPECT_FALSE(Pattern::compile(refused, false).ok()) << refused;
  }
  EXPECT_TRUE(Pattern::compile(
                  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|\p{N}{1,3}|[^\r\n\p{L}]?\p{L}+)", false)
                  .ok());
}

TEST(Tokenizer, RefusesWhatItDoesNotKnowByName) {
  const auto refuses = [](const Small& small, const std::string& words) {
    EXPECT_NE(small.error().find(words), std::string::npos) << small.error();
    EXPECT_EQ(small.error().substr(0, 21), "small/tokenizer.json:") << small.error();
  };
  Small s;
  s.pre_tokenizer = R"({"type":"Metaspace"})";
  refuses(s, "pre_tokenizer of type 'Metaspace'");
  s.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"foo":1})";
  refuses(s, "has the key 'foo'");
  s.pre_tokenizer = "null";
  refuses(s, "does not end with ByteLevel");
  s = {};
  s.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})";
  refuses(s, "normalizer of type 'Lowercase'");
  s = {};
  s.decoder = R"({"type":"WordPiece"})";
  refuses(s, "decoder of type 'WordPiece'");
  s = {};
  s.post_processor = R"({"type":"BertProcessing"})";
  refuses(s, "post_processor of type 'BertProcessing'");
  for (const char* more :
       {R"("dropout":0.1,)", R"("byte_fallback":true,)", R"("end_of_word_suffix":"</w>",)"}) {
    s = {};
    s.model_more = more;
    refuses(s, "which is not supported");
  }
  s = {};
  s.model_more = R"("type":"Unigram",)";
  refuses(s, "model of type 'Unigram'");
  s = {};
  s.added = "[" + added_token("Hello", 5, R"("special":true)") + "]";
  refuses(s, "added token 'Hello' has the id 5 here and 259 elsewhere");
  s.added = "[" + added_token("x1", 261, R"("special":true)") + "," +
            added_token("x2", 261, R"("special":true)") + "]";
  refuses(s, "have the same id 261");
  s.added = "[" + added_token("x1", 7, R"("special":true)") + "]";
  refuses(s, "has the id 7 of another token");
  s.added = "[" + added_token("x1", 99999999, R"("special":true)") + "]";
  refuses(s, "no id from 0 to");
  s = {};
  s.merges = R"(["He llo x"])";
  refuses(s, "merge 0 ('He llo x')");
}

TEST(Tokenizer, ConfigAddsTokensAndNames) {
  Small small;
  small.config =
      R"({"added_tokens_decoder":{"261":{"content":"<s>","special":true},"259":{"content":"Hello","special":false}},)"
      R"("bos_token":{"content":"<s>"},"eos_token":"</s>","pad_token":null,"chat_template":[)"
      R"({"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})";
  const Tokenizer t = small.tokenizer();
  EXPECT_EQ(t.encode("<s>Hello"), (Ids{261, 259}));
  EXPECT_TRUE(t.is_special(261));
  EXPECT_EQ(t.bos_token(), "<s>");
  EXPECT_EQ(t.eos_token(), "</s>");
  EXPECT_EQ(t.eos_token_id(), std::nullopt);
  EXPECT_EQ(t.token_id("<s>"), 261);
  EXPECT_EQ(t.token_id("Hello"), 259);
  EXPECT_EQ(t.chat_template(), "D");
}

Small llama_like() {
  Small small;
  small.added = "[" + added_token("<|begin|>", 261, R"("special":true)") + "," +
                added_token("<|head|>", 262, R"("special":true)") + "]";
  small.post_processor =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel","trim_offsets":false},{"type":"TemplateProcessing",)"
      R"("single":[{"SpecialToken":{"id":"<|begin|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],)"
      R"("special_tokens":{"<|begin|>":{"id":"<|begin|>","ids":[261],"tokens":["<|begin|>"]}}}]})";
  small.config =
      R"({"bos_token":"<|begin|>","chat_template":"{{ bos_token }}{% for m in messages %}<|head|>{{ m.content }}{% endfor %}"})";
  return small;
}

// Case C08.
TEST(Chat, OneBeginToken) {
  const Tokenizer t = llama_like().tokenizer();
  const Value messages = Value::list({make_message("user", "Hello")});
  const ChatTemplate with = ChatTemplate::of(t).value();
  EXPECT_EQ(encode_chat(t, with, messages, true).value(), (Ids{261, 262, 259}));
  const ChatTemplate without = ChatTemplate::parse("<|head|>{{ messages[0].content }}").value();
  EXPECT_EQ(encode_chat(t, without, messages, true).value(), (Ids{262, 259}));
  EXPECT_EQ(t.encode("Hello"), (Ids{259}));
  EXPECT_EQ(t.encode_with_post_processor("Hello").value(), (Ids{261, 259}));
  EXPECT_EQ(t.encode_with_post_processor("<|begin|>Hello").value(), (Ids{261, 259}));
}

TEST(Chat, BytesWithoutToken) {
  std::string json = llama_like().json();
  json.erase(json.find("\"Z\":90,"), 7);
  const Tokenizer t = Tokenizer::parse("small", json, llama_like().config).value();
  EXPECT_EQ(t.encode("aZb"), (Ids{'a', 'b'}));  // as the reference library does
  EXPECT_EQ(t.unencodable_byte("aZb"), 'Z');
  EXPECT_EQ(t.unencodable_byte("ab"), std::nullopt);
  const auto chat =
      encode_chat(t, ChatTemplate::of(t).value(), Value::list({make_message("user", "Z")}), true);
  ASSERT_FALSE(chat.ok());
  EXPECT_NE(chat.status().message().find("no token for the byte 0x5a"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
