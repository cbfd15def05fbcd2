// SPDX-License-Identifier: Apache-2.0
// Reads tokenizer.json, tokenizer_config.json and chat_template.jinja.
#include <algorithm>

#include "core/file.h"
#include "core/suggest.h"
#include "data/tokenizer_impl.h"
#include "data/unicode.h"
#include "data/utf8.h"
#include "data/value.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxTokenId = (int64_t{1} << 20) - 1;

// A key that would change ids if it were honoured, so it must be known. Null counts as absent.
Status check_keys(const Value& object, const std::string& where, const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.as_map().entries()) {
    if (value.is_none() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    return invalid("{} has the key '{}', which is not supported{}", where, key,
                   near.empty() ? "" : "; nearest known: '" + near + "'");
  }
  return ok_status();
}

bool flag(const Value& object, std::string_view key, bool missing) {
  const Value* value = object.find(key);
  return value == nullptr || value->is_none() ? missing : value->truthy();
}

bool present(const Value* value) {
  return value != nullptr && !value->is_none();
}

std::string text_of(const Value& object, std::string_view key) {
  const Value* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

Result<int32_t> id_of(const Value& value, std::string_view token) {
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > kMaxTokenId) {
    return invalid("token '{}' has no id from 0 to {}", token, kMaxTokenId);
  }
  return static_cast<int32_t>(value.as_int());
}

class Loader {
 public:
  Result<std::shared_ptr<Tokenizer::Impl>> tokenizer_json(const Value& root) {
    if (!root.is_map()) return invalid("is no JSON object");
    LOCKSTEP_RETURN_IF_ERROR(check_keys(root, "the file",
                                        {"version", "truncation", "padding", "added_tokens", "normalizer",
                                         "pre_tokenizer", "post_processor", "decoder", "model"}));
    LOCKSTEP_RETURN_IF_ERROR(normalizer(root.find("normalizer")));
    LOCKSTEP_RETURN_IF_ERROR(pre_tokenizer(root.find("pre_tokenizer"), true));
    const auto& steps = impl_->pre_tokenizer;
    if (steps.empty() || steps.back().kind != PreTokenizerStep::Kind::kByteLevel) {
      return invalid("pre_tokenizer does not end with ByteLevel: only byte-level vocabularies are supported");
    }
    LOCKSTEP_RETURN_IF_ERROR(model(root.find("model")));
    if (const Value* added = root.find("added_tokens"); present(added)) {
      if (!added->is_list()) return invalid("added_tokens is no list");
      for (const Value& token : added->as_list()) LOCKSTEP_RETURN_IF_ERROR(add_token(token, nullptr));
    }
    LOCKSTEP_RETURN_IF_ERROR(post_processor(root.find("post_processor")));
    const Value* decoder = root.find("decoder");
    if (present(decoder) && text_of(*decoder, "type") != "ByteLevel") {
      return invalid("decoder of type '{}' is not supported (ByteLevel is)", text_of(*decoder, "type"));
    }
    return impl_;
  }

  // Tokens that only tokenizer_config.json lists are added too; where both list one, tokenizer.json counts.
  Status config_json(const Value& root) {
    if (!root.is_map()) return invalid("is no JSON object");
    if (const Value* tokens = root.find("added_tokens_decoder"); tokens != nullptr && tokens->is_map()) {
      for (const auto& [id_text, token] : tokens->as_map().entries()) {
        const bool digits = !id_text.empty() && id_text.size() <= 7 &&
                            id_text.find_first_not_of("0123456789") == std::string::npos;
        if (!digits) return invalid("added_tokens_decoder has the key '{}', which is no id", id_text);
        const Value id = Value::integer(std::stoll(id_text));
        LOCKSTEP_RETURN_IF_ERROR(add_token(token, &id));
      }
    }
    static constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};
    for (const std::string_view name : kNames) {
      const Value* value = root.find(name);
      if (!present(value)) continue;
      const std::string text = value->is_string() ? value->as_string() : text_of(*value, "content");
      impl_->special_tokens.emplace_back(std::string(name), text);
      if (name == "bos_token") impl_->bos_token = text;
      if (name == "eos_token") impl_->eos_token = text;
      if (name == "pad_token") impl_->pad_token = text;
    }
    return chat_template(root.find("chat_template"));
  }

  // After all tokens: tables by id, matchers.
  Status finish() {
    int64_t limit = 0;
    for (const auto& entry : impl_->bpe.tokens()) limit = std::max(limit, int64_t{entry.second} + 1);
    for (const AddedToken& token : impl_->added) limit = std::max(limit, int64_t{token.id} + 1);
    const auto size = static_cast<size_t>(limit);
    impl_->bytes_of_id.resize(size);
    impl_->known.resize(size);
    impl_->special.resize(size);
    for (const auto& [spelling, id] : impl_->bpe.tokens()) {
      const auto index = static_cast<size_t>(id);
      if (impl_->known[index]) return invalid("two tokens of the vocabulary have the id {}", id);
      impl_->known[index] = true;
      impl_->bytes_of_id[index] = bytes_of_spelling(spelling).value_or(spelling);
    }
    for (AddedToken token : impl_->added) {
      const auto index = static_cast<size_t>(token.id);
      const auto in_vocab = impl_->bpe.id_of_spelling(token.content);
      if (impl_->known[index] && in_vocab != token.id) {
        return invalid("added token '{}' has the id {} of another token", token.content, token.id);
      }
      impl_->known[index] = true;
      impl_->special[index] = token.special;
      impl_->bytes_of_id[index] = token.content;
      impl_->one_character_added = impl_->one_character_added || utf8_length(token.content) == 1;
      impl_->all_matcher.add(token);
      if (token.normalized && impl_->nfc) token.content = to_nfc(token.content);
      (token.normalized ? impl_->normalized_matcher : impl_->raw_matcher).add(std::move(token));
    }
    return ok_status();
  }

  const std::shared_ptr<Tokenizer::Impl>& impl() const { return impl_; }

 private:
  Status normalizer(const Value* value) {
    if (!present(value)) return ok_status();
    const std::string type = text_of(*value, "type");
    if (type == "NFC") {
      impl_->nfc = true;
      return ok_status();
    }
    const Value* parts = value->find("normalizers");
    if (type == "Sequence" && parts != nullptr && parts->is_list()) {
      for (const Value& part : parts->as_list()) LOCKSTEP_RETURN_IF_ERROR(normalizer(&part));
      return ok_status();
    }
    return invalid("normalizer of type '{}' is not supported (NFC and Sequence are)", type);
  }

  Status pre_tokenizer(const Value* value, bool outermost) {
    if (!present(value)) return outermost ? ok_status() : invalid("pre_tokenizer has an empty part");
    const auto& steps = impl_->pre_tokenizer;
    if (!steps.empty() && steps.back().kind == PreTokenizerStep::Kind::kByteLevel) {
      return invalid("pre_tokenizer goes on after ByteLevel: not supported");
    }
    const std::string type = text_of(*value, "type");
    if (type == "Split") return split(*value);
    if (type == "Digits" || type == "ByteLevel") {
      PreTokenizerStep step;
      if (type == "Digits") {
        LOCKSTEP_RETURN_IF_ERROR(check_keys(*value, "pre_tokenizer Digits", {"type", "individual_digits"}));
        step.kind = PreTokenizerStep::Kind::kDigits;
        step.individual_digits = flag(*value, "individual_digits", false);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(check_keys(*value, "pre_tokenizer ByteLevel",
                                            {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
        step.kind = PreTokenizerStep::Kind::kByteLevel;
        step.add_prefix_space = flag(*value, "add_prefix_space", true);
        step.use_regex = flag(*value, "use_regex", true);
        if (step.use_regex) {
          LOCKSTEP_ASSIGN_OR_RETURN(step.pattern, byte_level_pattern());
        }
      }
      impl_->pre_tokenizer.push_back(std::move(step));
      return ok_status();
    }
    const Value* parts = value->find("pretokenizers");
    if (type == "Sequence" && parts != nullptr && parts->is_list()) {
      for (const Value& part : parts->as_list()) LOCKSTEP_RETURN_IF_ERROR(pre_tokenizer(&part, false));
      return ok_status();
    }
    return invalid("pre_tokenizer of type '{}' is not supported (Split, Digits, ByteLevel and Sequence are)",
                   type);
  }

  Status split(const Value& value) {
    LOCKSTEP_RETURN_IF_ERROR(
        check_keys(value, "pre_tokenizer Split", {"type", "pattern", "behavior", "invert"}));
    PreTokenizerStep step;
    const std::string behavior = text_of(value, "behavior");
    if (behavior != "Isolated" && behavior != "Removed") {
      return invalid(
          "pre_tokenizer Split has the behavior '{}', which is not supported (Isolated and "
          "Removed are)",
          behavior);
    }
    step.drop_matches = behavior == "Removed";
    step.invert = flag(value, "invert", false);
    const Value* pattern = value.find("pattern");
    const Value* regex = pattern != nullptr ? pattern->find("Regex") : nullptr;
    const Value* text = pattern != nullptr ? pattern->find("String") : nullptr;
    const Value* chosen = regex != nullptr ? regex : text;
    if (chosen == nullptr || !chosen->is_string()) {
      return invalid("pre_tokenizer Split has no pattern of kind Regex or String");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(step.pattern, Pattern::compile(chosen->as_string(), chosen == text));
    impl_->pre_tokenizer.push_back(std::move(step));
    return ok_status();
  }

  Status model(const Value* value) {
    if (value == nullptr || !value->is_map()) return invalid("has no model");
    const Value* type = value->find("type");
    if (present(type) && !(type->is_string() && type->as_string() == "BPE")) {
      return invalid("model of type '{}' is not supported (BPE is)", to_str(*type));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        check_keys(*value, "model",
                   {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                    "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
      const Value* option = value->find(key);
      if (option != nullptr && option->truthy()) {
        return invalid("model has {} {}, which is not supported", key, to_repr(*option));
      }
    }
    impl_->bpe.set_whole_words_first(flag(*value, "ignore_merges", false));
    const Value* vocab = value->find("vocab");
    if (vocab == nullptr || !vocab->is_map()) return invalid("model has no vocab");
    impl_->bpe.reserve(vocab->as_map().size());
    for (const auto& [spelling, id_value] : vocab->as_map().entries()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const int32_t id, id_of(id_value, spelling));
      impl_->bpe.add_token(spelling, id);
    }
    bool all_bytes = true;
    for (int byte = 0; byte < 256; ++byte) {
      all_bytes = all_bytes && impl_->bpe.has_byte(static_cast<uint8_t>(byte));
    }
    // With a token for every byte nothing is ever unknown.
    const Value* unknown = value->find("unk_token");
    if (!all_bytes && unknown != nullptr && unknown->truthy()) {
      return invalid("model has unk_token {} and no token for some bytes, which is not supported",
                     to_repr(*unknown));
    }
    return merges(value->find("merges"));
  }

  Status merges(const Value* value) {
    if (value == nullptr || !value->is_list()) return invalid("model has no merges");
    int64_t rank = 0;
    for (const Value& merge : value->as_list()) {
      std::string_view left;
      std::string_view right;
      if (merge.is_string()) {
        const std::string_view text = merge.as_string();
        const size_t blank = text.find(' ');
        if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos) {
          return invalid("merge {} ('{}') is not two parts with one blank between", rank, text);
        }
        left = text.substr(0, blank);
        right = text.substr(blank + 1);
      } else if (merge.is_list() && merge.as_list().size() == 2 && merge.as_list()[0].is_string() &&
                 merge.as_list()[1].is_string()) {
        left = merge.as_list()[0].as_string();
        right = merge.as_list()[1].as_string();
      } else {
        return invalid("merge {} is neither text nor a pair of texts", rank);
      }
      if (!impl_->bpe.add_merge(left, right)) {
        return invalid("merge {} ('{}' and '{}'): a part or their join is no token of the vocabulary", rank,
                       left, right);
      }
      ++rank;
    }
    impl_->bpe.finish_merges();
    return ok_status();
  }

  // From tokenizer.json ("id" inside), or from tokenizer_config.json with its id given.
  Status add_token(const Value& value, const Value* outer_id) {
    const Value* content = value.find("content");
    if (content == nullptr || !content->is_string()) return invalid("an added token has no content");
    AddedToken token;
    token.content = content->as_string();
    const Value* id = outer_id != nullptr ? outer_id : value.find("id");
    LOCKSTEP_ASSIGN_OR_RETURN(token.id, id_of(id == nullptr ? Value() : *id, token.content));
    const auto in_vocab = impl_->bpe.id_of_spelling(token.content);
    const auto earlier = impl_->added_by_content.find(token.content);
    const bool again = earlier != impl_->added_by_content.end();
    const int32_t other = again ? impl_->added[earlier->second].id : in_vocab.value_or(token.id);
    if (other != token.id) {
      return invalid("added token '{}' has the id {} here and {} elsewhere", token.content, token.id, other);
    }
    if (again) return ok_status();
    for (const AddedToken& known : impl_->added) {
      if (known.id == token.id) {
        return invalid("added tokens '{}' and '{}' have the same id {}", known.content, token.content,
                       token.id);
      }
    }
    token.special = flag(value, "special", false);
    token.lstrip = flag(value, "lstrip", false);
    token.rstrip = flag(value, "rstrip", false);
    token.single_word = flag(value, "single_word", false);
    token.normalized = flag(value, "normalized", !token.special);
    impl_->added_by_content.emplace(token.content, impl_->added.size());
    impl_->added.push_back(std::move(token));
    return ok_status();
  }

  Status post_processor(const Value* value) {
    if (!present(value)) return ok_status();
    const std::string type = text_of(*value, "type");
    if (type == "ByteLevel") return ok_status();  // moves offsets only
    if (type == "TemplateProcessing") return template_processing(*value);
    const Value* parts = value->find("processors");
    if (type == "Sequence" && parts != nullptr && parts->is_list()) {
      for (const Value& part : parts->as_list()) LOCKSTEP_RETURN_IF_ERROR(post_processor(&part));
      return ok_status();
    }
    return invalid(
        "post_processor of type '{}' is not supported (ByteLevel, TemplateProcessing and Sequence are)",
        type);
  }

  Status template_processing(const Value& value) {
    const Value* single = value.find("single");
    const Value* tokens = value.find("special_tokens");
    if (single == nullptr || !single->is_list()) return invalid("TemplateProcessing has no list 'single'");
    bool after_text = false;
    for (const Value& part : single->as_list()) {
      if (part.find("Sequence") != nullptr) {
        if (after_text) return invalid("TemplateProcessing has the text twice: not supported");
        after_text = true;
        continue;
      }
      const Value* token = part.find("SpecialToken");
      const std::string name = token != nullptr ? text_of(*token, "id") : "";
      const Value* entry = tokens != nullptr ? tokens->find(name) : nullptr;
      const Value* ids = entry != nullptr ? entry->find("ids") : nullptr;
      if (ids == nullptr || !ids->is_list()) {
        return invalid("TemplateProcessing names the token '{}' without ids in special_tokens", name);
      }
      for (const Value& id_value : ids->as_list()) {
        LOCKSTEP_ASSIGN_OR_RETURN(const int32_t id, id_of(id_value, name));
        (after_text ? impl_->suffix : impl_->prefix).push_back(id);
      }
    }
    return ok_status();
  }

  // A text, or a list of {name, template} of which "default" counts.
  Status chat_template(const Value* value) {
    if (!present(value)) return ok_status();
    if (value->is_string()) {
      impl_->chat_template = value->as_string();
      return ok_status();
    }
    if (!value->is_list()) return invalid("chat_template is neither a text nor a list");
    for (const Value& part : value->as_list()) {
      if (text_of(part, "name") == "default") impl_->chat_template = text_of(part, "template");
    }
    return ok_status();
  }

  std::shared_ptr<Tokenizer::Impl> impl_ = std::make_shared<Tokenizer::Impl>();
};

// One call of `step` with the parsed text; errors get the file's name.
template <typename Step>
Status read_part(const std::string& name, std::string_view text, Step step) {
  const Result<Value> root = parse_json(text);
  if (!root.ok()) return root.status().with_context(name);
  const Status status = step(root.value());
  return status.ok() ? status : status.with_context(name);
}

}  // namespace

Result<Tokenizer> Tokenizer::parse(const std::string& name, std::string_view tokenizer_json,
                                   std::string_view config_json) {
  Loader loader;
  LOCKSTEP_RETURN_IF_ERROR(
      read_part(join_path(name, "tokenizer.json"), tokenizer_json, [&](const Value& root) {
        const auto result = loader.tokenizer_json(root);
        return result.ok() ? ok_status() : result.status();
      }));
  if (!config_json.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(read_part(join_path(name, "tokenizer_config.json"), config_json,
                                       [&](const Value& root) { return loader.config_json(root); }));
  }
  if (const Status status = loader.finish(); !status.ok()) {
    return status.with_context(join_path(name, "tokenizer.json"));
  }
  Tokenizer tokenizer;
  loader.impl()->chat_template_file = join_path(name, "tokenizer_config.json");
  tokenizer.impl_ = loader.impl();
  return tokenizer;
}

Result<Tokenizer> Tokenizer::load(const std::string& folder) {
  const std::string path = join_path(folder, "tokenizer.json");
  if (!path_exists(path)) {
    return invalid("{}: there is no tokenizer.json here; name the model's Hugging Face folder", folder);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string tokenizer_json, read_file(path));
  std::string config_json;
  const std::string config_path = join_path(folder, "tokenizer_config.json");
  if (path_exists(config_path)) {
    LOCKSTEP_ASSIGN_OR_RETURN(config_json, read_file(config_path));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Tokenizer tokenizer, parse(folder, tokenizer_json, config_json));
  const std::string template_path = join_path(folder, "chat_template.jinja");
  if (path_exists(template_path)) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::string text, read_file(template_path));
    if (find_invalid_utf8(text)) return invalid("{}: is no UTF-8", template_path);
    auto impl = std::make_shared<Impl>(*tokenizer.impl_);
    impl->chat_template = std::move(text);
    impl->chat_template_file = template_path;
    tokenizer.impl_ = std::move(impl);
  }
  return tokenizer;
}

}  // namespace lockstep::data
