// SPDX-License-Identifier: Apache-2.0
// First byte even: the rest is a tokenizer.json. Odd: the rest is text for a tokenizer with the pattern of
// Qwen2.5, whose decoding must give the text back.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/unicode.h"
#include "data/utf8.h"
#include "data/value.h"

namespace {

using lockstep::data::Tokenizer;
using lockstep::data::Value;
using lockstep::data::ValueMap;

Tokenizer fixed_tokenizer() {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    ValueMap entry;
    entry.set(lockstep::data::spelling_of_byte(static_cast<uint8_t>(byte)), Value::integer(byte));
    const std::string text = to_compact_json(Value::map(entry));
    vocab += text.substr(1, text.size() - 2) + ",";
  }
  const std::string json =
      R"({"added_tokens":[{"id":300,"content":"<|im_end|>","special":true},{"id":301,"content":"<t>","special":false}],)"
      R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
      R"({"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
      R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
      R"("model":{"type":"BPE","vocab":{)" +
      vocab + R"("aa":256,"aaaa":257,"Ġa":258,"ab":259},"merges":["a a","aa aa","Ġ a","a b"]}})";
  return Tokenizer::parse("fixed", json, "").value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto tokenizer = Tokenizer::parse("fuzz", text, {});
    if (!tokenizer.ok()) {
      LOCKSTEP_CHECK(tokenizer.status().message().find('\n') == std::string::npos,
                     tokenizer.status().message());
      return 0;
    }
    const auto ids = tokenizer.value().try_encode("The 12 aab\xC3\xA9\n " + text);
    if (ids.ok()) tokenizer.value().decode_text(ids.value());
    return 0;
  }
  static const Tokenizer tokenizer = fixed_tokenizer();
  const auto ids = tokenizer.encode(text);
  const std::string want = lockstep::data::replace_invalid_utf8(text);
  LOCKSTEP_CHECK(lockstep::data::to_nfc(tokenizer.decode(ids)) == lockstep::data::to_nfc(want),
                 "decode(encode(x)) != x");
  LOCKSTEP_CHECK(tokenizer.decode(tokenizer.encode(text, false)) == lockstep::data::to_nfc(want),
                 "plain round trip");
  return 0;
}
