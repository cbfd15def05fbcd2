// SPDX-License-Identifier: Apache-2.0
#include "demo/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "demo/problems.h"

namespace lockstep::demo {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBytes = 256;
constexpr const char* kControlTokens[] = {"<|endoftext|>", "<|user|>", "<|assistant|>"};
// Qwen2's own pattern: readers that know the model type put it in place of a file's.
constexpr const char* kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|endoftext|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

// The printable alphabet of byte-level BPE: bytes that print stand for themselves, the others are numbered
// from U+0100 on in byte order.
std::string printable(const std::string& bytes) {
  static const std::vector<std::string> kAlphabet = [] {
    std::vector<std::string> alphabet;
    int next = 256;
    for (int byte = 0; byte < kBytes; ++byte) {
      const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      const int code = prints ? byte : next++;
      if (code < 128) {
        alphabet.emplace_back(1, static_cast<char>(code));
      } else {
        alphabet.push_back({static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))});
      }
    }
    return alphabet;
  }();
  std::string text;
  for (const char byte : bytes) text += kAlphabet[static_cast<unsigned char>(byte)];
  return text;
}

Json control_token(const char* content) {
  return {{"content", content}, {"lstrip", false},      {"normalized", false},
          {"rstrip", false},    {"single_word", false}, {"special", true}};
}

}  // namespace

std::vector<Merge> tokenizer_merges() {
  std::vector<std::string> words = problem_words();
  std::stable_sort(words.begin(), words.end(),
                   [](const std::string& a, const std::string& b) { return (a[0] == ' ') > (b[0] == ' '); });
  std::vector<Merge> merges = {{"#", "#"}, {"##", "##"}};
  std::set<std::string> made;
  for (const std::string& word : words) {
    for (size_t size = 2; size <= word.size(); ++size) {
      if (made.insert(word.substr(0, size)).second) {
        merges.push_back({word.substr(0, size - 1), word.substr(size - 1, 1)});
      }
    }
  }
  return merges;
}

int64_t tokenizer_size() {
  return kBytes + static_cast<int64_t>(tokenizer_merges().size() + std::size(kControlTokens));
}

std::string tokenizer_json() {
  Json vocabulary = Json::object();
  Json merges = Json::array();
  int64_t next = 0;
  for (int byte = 0; byte < kBytes; ++byte) {
    vocabulary[printable(std::string(1, static_cast<char>(byte)))] = next++;
  }
  for (const Merge& merge : tokenizer_merges()) {
    vocabulary[printable(merge.left + merge.right)] = next++;
    merges.push_back(printable(merge.left) + " " + printable(merge.right));
  }
  Json added = Json::array();
  for (const char* content : kControlTokens) {
    Json token = control_token(content);
    token["id"] = next++;
    added.push_back(std::move(token));
  }
  const auto byte_level = [](bool with_regex) {
    Json part = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}};
    part["use_regex"] = with_regex;
    return part;
  };
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kPattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", ""},
                      {"end_of_word_suffix", ""},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", vocabulary},
                      {"merges", merges}};
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}}},
      {"post_processor", byte_level(false)},
      {"decoder", byte_level(false)},
      {"model", model}};
  return file.dump(2) + "\n";
}

std::string tokenizer_config_json() {
  Json decoder = Json::object();
  int64_t next = tokenizer_size() - static_cast<int64_t>(std::size(kControlTokens));
  for (const char* content : kControlTokens) decoder[std::to_string(next++)] = control_token(content);
  const Json file = {{"add_bos_token", false},
                     {"add_prefix_space", false},
                     {"added_tokens_decoder", decoder},
                     {"bos_token", nullptr},
                     {"chat_template", kChatTemplate},
                     {"clean_up_tokenization_spaces", false},
                     {"eos_token", "<|endoftext|>"},
                     {"errors", "replace"},
                     {"model_max_length", 256},
                     {"pad_token", "<|endoftext|>"},
                     {"split_special_tokens", false},
                     {"tokenizer_class", "Qwen2Tokenizer"},
                     {"unk_token", nullptr}};
  return file.dump(2) + "\n";
}

std::string model_config_json() {
  const int64_t tokens = tokenizer_size();
  const Json file = {{"architectures", Json::array({"Qwen2ForCausalLM"})},
                     {"attention_dropout", 0.0},
                     {"eos_token_id", tokens - static_cast<int64_t>(std::size(kControlTokens))},
                     {"hidden_act", "silu"},
                     {"hidden_size", 96},
                     {"initializer_range", 0.02},
                     {"intermediate_size", 256},
                     {"max_position_embeddings", 256},
                     {"model_type", "qwen2"},
                     {"num_attention_heads", 4},
                     {"num_hidden_layers", 2},
                     {"num_key_value_heads", 2},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 10000.0},
                     {"tie_word_embeddings", true},
                     {"torch_dtype", "float32"},
                     {"use_cache", true},
                     {"use_sliding_window", false},
                     {"vocab_size", (tokens + 15) / 16 * 16}};
  return file.dump(2) + "\n";
}

}  // namespace lockstep::demo
