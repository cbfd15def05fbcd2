// SPDX-License-Identifier: Apache-2.0
#include "demo/model_files.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/sha256.h"
#include "data/tokenizer.h"
#include "demo/problems.h"

namespace lockstep::demo {
namespace {

// BPE in its textbook form: the merge of the lowest rank that applies anywhere, leftmost first, until none
// does.
std::vector<std::string> bpe(const std::string& piece) {
  std::map<std::pair<std::string, std::string>, size_t> rank;
  for (const Merge& merge : tokenizer_merges()) rank.emplace(std::pair(merge.left, merge.right), rank.size());
  std::vector<std::string> tokens;
  for (const char c : piece) tokens.emplace_back(1, c);
  for (;;) {
    size_t best = rank.size(), at = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = rank.find({tokens[i], tokens[i + 1]});
      if (found != rank.end() && found->second < best) best = found->second, at = i;
    }
    if (best == rank.size()) return tokens;
    tokens[at] += tokens[at + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(DemoModelFiles, EveryWordIsOneToken) {
  const std::vector<std::string> words = problem_words();
  EXPECT_GT(words.size(), 40U);
  for (const std::string& word : words) EXPECT_EQ(bpe(word), std::vector<std::string>{word});
  EXPECT_EQ(bpe("####"), std::vector<std::string>{"####"});
}

TEST(DemoModelFiles, TokenizerIsWhole) {
  const auto file = nlohmann::ordered_json::parse(tokenizer_json());
  std::set<int64_t> ids;
  for (const auto& [token, id] : file["model"]["vocab"].items())
    EXPECT_TRUE(ids.insert(id.get<int64_t>()).second);
  for (const auto& token : file["added_tokens"]) EXPECT_TRUE(ids.insert(token["id"].get<int64_t>()).second);
  EXPECT_EQ(ids.size(), static_cast<size_t>(tokenizer_size()));
  EXPECT_EQ(*ids.rbegin(), tokenizer_size() - 1);
  // Each merge joins tokens that are there before it.
  std::set<std::string> known;
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    if (id < 256) known.insert(token);
  }
  EXPECT_EQ(known.size(), 256U);
  for (const auto& merge : file["model"]["merges"]) {
    const std::string text = merge;
    const size_t space = text.find(' ');
    EXPECT_TRUE(known.count(text.substr(0, space))) << text;
    EXPECT_TRUE(known.count(text.substr(space + 1))) << text;
    EXPECT_TRUE(known.insert(text.substr(0, space) + text.substr(space + 1)).second) << text;
  }
  EXPECT_EQ(file["model"]["vocab"]["\xC4\xA0"], 0x20);  // a space prints as U+0120
  EXPECT_EQ(file["model"]["vocab"]["\xC4\x8A"], 0x0A);  // a line feed as U+010A
}

TEST(DemoModelFiles, ConfigsAgreeWithTokenizer) {
  const auto model = nlohmann::json::parse(model_config_json());
  const auto tokenizer = nlohmann::json::parse(tokenizer_json());
  const auto config = nlohmann::json::parse(tokenizer_config_json());
  EXPECT_EQ(model["vocab_size"].get<int64_t>() % 16, 0);
  EXPECT_GE(model["vocab_size"].get<int64_t>(), tokenizer_size());
  EXPECT_LT(model["vocab_size"].get<int64_t>(), tokenizer_size() + 16);
  EXPECT_EQ(tokenizer["added_tokens"][0]["content"], config["eos_token"]);
  EXPECT_EQ(tokenizer["added_tokens"][0]["id"], model["eos_token_id"]);
  for (const auto& token : tokenizer["added_tokens"]) {
    EXPECT_EQ(config["added_tokens_decoder"][std::to_string(token["id"].get<int64_t>())]["content"],
              token["content"]);
  }
}

TEST(DemoModelFiles, OurTokenizerReadsThem) {
  const auto tokenizer = data::Tokenizer::parse("demo", tokenizer_json(), tokenizer_config_json());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value().token_limit(), tokenizer_size());
  for (const std::string& word : problem_words())
    EXPECT_EQ(tokenizer.value().encode(word).size(), 1U) << word;
  const ProblemSet problems = make_problems(42, 512);
  size_t longest = 0;
  for (const WarmupRow& row : make_warmup_rows(42, problems, {})) {
    const std::string text = "<|user|>" + row.problem.question + "<|assistant|>" +
                             (row.direct ? row.problem.direct() : row.problem.worked()) + "<|endoftext|>";
    const auto ids = tokenizer.value().encode(text);
    ASSERT_EQ(tokenizer.value().decode(ids), text);
    longest = std::max(longest, ids.size());
  }
  EXPECT_EQ(longest, 48U);
  const std::string other = "caf\xC3\xA9 42 + \xE2\x82\xAC<|user|> apples";
  EXPECT_EQ(tokenizer.value().decode(tokenizer.value().encode(other)), other);
}

TEST(DemoModelFiles, SameBytesEveryTime) {
  EXPECT_EQ(sha256_hex(tokenizer_json()), "e7cbc04d425c57f569a87d6e87ad698397472fb2549dc66855394104fb735e64");
  EXPECT_EQ(sha256_hex(tokenizer_config_json()),
            "8584a9ca70a47793063406a9b13f2f20fcd573161a75bdd7f24874cbaecc5e87");
  EXPECT_EQ(sha256_hex(model_config_json()),
            "dc890eef0bf708483a1f7b852907160ffca03725a1301669bb8db3e628d3b3ff");
}

}  // namespace
}  // namespace lockstep::demo
