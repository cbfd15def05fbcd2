// SPDX-License-Identifier: Apache-2.0
// Translation of patterns, and PCRE2.
#include "data/pre_tokenizer.h"
#include "data/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>

namespace lockstep::data {
namespace {

// Oniguruma's \s is Unicode White_Space. PCRE2's also has U+180E, so both classes are spelled out.
constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaceSet =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWordSet = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        LOCKSTEP_RETURN_IF_ERROR(escape());
      } else if (in_class_) {
        LOCKSTEP_RETURN_IF_ERROR(in_class(c));
      } else {
        LOCKSTEP_RETURN_IF_ERROR(outside(c));
      }
    }
    return out_;
  }

 private:
  Status refuse(std::string_view what) const {
    return invalid("pattern '{}': {} is not supported", pattern_, what);
  }

  void set(std::string_view set) {
    if (in_class_) {
      out_ += set;
    } else {
      out_ += '[';
      out_ += set;
      out_ += ']';
    }
  }

  Status escape() {
    if (at_ + 1 >= pattern_.size()) return refuse("a backslash at the end");
    const char c = pattern_[at_ + 1];
    if (c == 's') {
      set(kSpaceSet);
    } else if (c == 'S') {
      set(kNotSpaceSet);
    } else if (c == 'w') {
      set(kWordSet);
    } else if (c == 'p' || c == 'P' || c == 'x') {
      return braced(c);
    } else if (std::string_view("dDrntfv").find(c) != std::string_view::npos) {
      // \v is a vertical tab in Oniguruma, a class in PCRE2.
      if (c == 'v') {
        out_ += R"(\x{b})";
      } else {
        out_ += pattern_.substr(at_, 2);
      }
    } else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return refuse(std::string("\\") + c);
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      ++at_;  // an escaped letter beyond ASCII is that letter
      return ok_status();
    } else {
      out_ += pattern_.substr(at_, 2);
    }
    at_ += 2;
    return ok_status();
  }

  // \p{..}, \P{..}, \x{..}
  Status braced(char c) {
    const size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == std::string_view::npos) {
      return refuse(std::string("\\") + c + " without {}");
    }
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    for (const char letter : name) {
      const bool word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                        (letter >= 'A' && letter <= 'Z') || letter == '_' ||
                        (letter == '^' && &letter == name.data());
      if (!word) return refuse("property '" + std::string(name) + "'");
    }
    out_ += pattern_.substr(at_, close + 1 - at_);
    at_ = close + 1;
    return ok_status();
  }

  Status in_class(char c) {
    if (c == '[') return refuse("a class within a class");
    if (c == '&' && pattern_.substr(at_, 2) == "&&") return refuse("an intersection of classes");
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
    return ok_status();
  }

  Status outside(char c) {
    if (c == '^' || c == '$') return refuse("an anchor");
    if (c == '{') return interval();
    if (c == '(' && pattern_.substr(at_, 2) == "(*") return refuse("(*");
    if (c == '(' && pattern_.substr(at_, 2) == "(?") {
      // Groups and look-around that mean the same in both.
      static constexpr std::string_view kKnown[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
      for (const std::string_view known : kKnown) {
        if (pattern_.substr(at_, known.size()) != known) continue;
        out_ += known;
        at_ += known.size();
        return ok_status();
      }
      return refuse("the group " + std::string(pattern_.substr(at_, 4)));
    }
    out_ += c;
    ++at_;
    if (c == '[') {
      in_class_ = true;
      if (at_ < pattern_.size() && pattern_[at_] == '^') out_ += pattern_[at_++];
      if (at_ < pattern_.size() && pattern_[at_] == ']') return refuse("an empty class");
    }
    return ok_status();
  }

  // {n}, {n,}, {n,m}; a + after it repeats in Oniguruma and is possessive in PCRE2.
  Status interval() {
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return refuse("a brace that is no interval");
    const std::string_view inside = pattern_.substr(at_ + 1, close - at_ - 1);
    const bool digits = !inside.empty() && inside[0] != ',' &&
                        inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!digits) return refuse("a brace that is no interval");
    if (close + 1 < pattern_.size() && pattern_[close + 1] == '+') return refuse("an interval with +");
    out_ += pattern_.substr(at_, close + 1 - at_);
    at_ = close + 1;
    return ok_status();
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
  if (find_invalid_utf8(pattern)) return invalid("pattern is no UTF-8");
  return Translator(pattern).run();
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Result<Pattern> Pattern::compile(std::string_view pattern, bool literal) {
  std::string text(pattern);
  uint32_t options = PCRE2_UTF | PCRE2_LITERAL;
  if (pattern.empty()) return invalid("pattern is empty");
  if (!literal) {
    options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    LOCKSTEP_ASSIGN_OR_RETURN(text, translate_pattern(pattern));
  }
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error, &offset,
                             context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return invalid("pattern '{}': {}", pattern, message);
  }
  uint32_t match_empty = 0;
  pcre2_pattern_info(code->code, PCRE2_INFO_MATCHEMPTY, &match_empty);
  if (match_empty != 0) return invalid("pattern '{}' can match nothing: not supported", pattern);
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter gives the same matches
  Pattern result;
  result.code_ = std::move(code);
  return result;
}

bool Pattern::find_all(std::string_view text, std::vector<std::pair<size_t, size_t>>& matches) const {
  // The default JIT stack of 32 KiB is too small for long runs of one class; this one grows on demand.
  constexpr size_t kStackBytes = size_t{8} << 20;
  struct Scratch {
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, kStackBytes, nullptr);
    Scratch() { pcre2_jit_stack_assign(context, nullptr, stack); }
    ~Scratch() {
      pcre2_jit_stack_free(stack);
      pcre2_match_context_free(context);
      pcre2_match_data_free(match);
    }
  };
  static thread_local Scratch scratch;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int count = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.match,
                                  scratch.context);
    if (count == PCRE2_ERROR_NOMATCH) return true;
    if (count < 0) return false;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.match);
    matches.emplace_back(ends[0], ends[1]);
    at = ends[1];
  }
  return true;
}

}  // namespace lockstep::data
