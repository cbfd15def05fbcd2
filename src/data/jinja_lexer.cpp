// SPDX-License-Identifier: Apache-2.0
#include "data/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "data/utf8.h"

namespace lockstep::data {
namespace {

using Kind = JinjaToken::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// One newline at the end goes; \r\n and \r become \n.
std::string normalise_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalise_newlines(source)) {}

  Result<std::vector<JinjaToken>> run() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag(at_);
      if (tag == std::string::npos) {
        data(text_.substr(at_), at_);
        at_ = text_.size();
        break;
      }
      LOCKSTEP_RETURN_IF_ERROR(tag_at(tag));
    }
    push(Kind::kEnd, "", text_.size());
    return std::move(tokens_);
  }

 private:
  size_t next_tag(size_t from) const {
    for (size_t i = from; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    }
    return std::string::npos;
  }

  int line_of(size_t offset) {
    // Offsets come in ascending order but for a few steps back, so counting goes on from the last place.
    if (offset < counted_to_) {
      line_ -= static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(offset),
                                           text_.begin() + static_cast<std::ptrdiff_t>(counted_to_), '\n'));
    } else {
      line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_to_),
                                           text_.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    }
    counted_to_ = offset;
    return line_;
  }

  Status error(size_t offset, std::string_view what) {
    return invalid("chat template line {}: {}", line_of(offset), what);
  }

  JinjaToken& push(Kind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), line_of(offset), 0, 0});
    return tokens_.back();
  }
  void data(std::string text, size_t offset) {
    if (!text.empty()) push(Kind::kData, std::move(text), offset);
  }

  // The text before a tag, without the blanks the tag's sign or lstrip_blocks takes.
  std::string before_tag(size_t begin, size_t end, char sign, bool is_variable) const {
    const std::string_view text = std::string_view(text_).substr(begin, end - begin);
    if (sign == '-') return std::string(strip(text, false, true));
    if (sign == '+' || is_variable) return std::string(text);
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool at_line_begin = line_begin > 0 || line_starting_;
    if (at_line_begin && strip(text.substr(line_begin), true, true).empty()) {
      return std::string(text.substr(0, line_begin));
    }
    return std::string(text);
  }

  char sign_at(size_t offset) const {
    return offset < text_.size() && (text_[offset] == '-' || text_[offset] == '+') ? text_[offset] : ' ';
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      const Utf8Char c = next_utf8(text_, at_);
      if (!is_python_space(c.code)) break;
      at_ += static_cast<size_t>(c.length_bytes);
    }
  }

  // After a closing tag: "-" takes all blanks, nothing takes one newline, "+" takes none.
  void after_tag(char sign, bool trims_newline) {
    const size_t begin = at_;
    if (sign == '-') {
      skip_blanks();
    } else if (sign != '+' && trims_newline && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = at_ > begin && text_[at_ - 1] == '\n';
  }

  Status tag_at(size_t tag) {
    const char type = text_[tag + 1];
    const char sign = sign_at(tag + 2);
    data(before_tag(at_, tag, sign, type == '{'), at_);
    at_ = tag + (sign == ' ' ? 2 : 3);
    if (type == '#') return comment(tag);
    if (type == '%') {
      const size_t keyword = skip_from(at_);
      if (text_.compare(keyword, 3, "raw") == 0 && closes_tag(skip_from(keyword + 3))) {
        return raw(tag, skip_from(keyword + 3));
      }
    }
    push(type == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, "", tag);
    return expression(tag, type == '{');
  }

  size_t skip_from(size_t offset) const {
    while (offset < text_.size() &&
           (text_[offset] == ' ' || text_[offset] == '\n' || text_[offset] == '\t')) {
      ++offset;
    }
    return offset;
  }
  bool closes_tag(size_t offset) const {
    return text_.compare(offset, 2, "%}") == 0 || text_.compare(offset, 3, "-%}") == 0;
  }

  Status comment(size_t tag) {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) return error(tag, "a comment does not end");
    const char sign = end > at_ ? sign_at(end - 1) : ' ';
    at_ = end + 2;
    after_tag(sign, true);
    return ok_status();
  }

  Status raw(size_t tag, size_t close) {
    const char open_sign = sign_at(close);
    at_ = close + (open_sign == '-' ? 3 : 2);
    after_tag(open_sign == '-' ? '-' : '+', true);
    const size_t begin = at_;
    for (size_t i = begin; (i = text_.find("{%", i)) != std::string::npos; i += 2) {
      const char sign = sign_at(i + 2);
      const size_t keyword = skip_from(i + (sign == ' ' ? 2 : 3));
      if (text_.compare(keyword, 6, "endraw") != 0) continue;
      const size_t end = skip_from(keyword + 6);
      const char end_sign = sign_at(end);
      const size_t brace = end + (end_sign == ' ' ? 0 : 1);
      if (text_.compare(brace, 2, "%}") != 0) continue;
      data(before_tag(begin, i, sign, false), begin);
      at_ = brace + 2;
      after_tag(end_sign, true);
      return ok_status();
    }
    return error(tag, "raw without endraw");
  }

  // Tokens up to the end of the tag.
  Status expression(size_t tag, bool is_variable) {
    const std::string_view close = is_variable ? "}}" : "%}";
    std::vector<char> open;
    while (true) {
      skip_blanks();
      if (at_ >= text_.size()) return error(tag, "a tag does not end");
      if (open.empty()) {
        char sign = sign_at(at_);
        if (is_variable && sign == '+') sign = ' ';  // only block tags have this one
        const size_t brace = at_ + (sign == ' ' ? 0 : 1);
        if (text_.compare(brace, 2, close) == 0) {
          push(is_variable ? Kind::kVariableEnd : Kind::kBlockEnd, "", at_);
          at_ = brace + 2;
          after_tag(sign, !is_variable);
          return ok_status();
        }
      }
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        LOCKSTEP_RETURN_IF_ERROR(string(c));
      } else if (is_digit(c)) {
        LOCKSTEP_RETURN_IF_ERROR(number());
      } else if (is_name_start(c)) {
        const size_t begin = at_;
        while (at_ < text_.size() && (is_name_start(text_[at_]) || is_digit(text_[at_]))) ++at_;
        push(Kind::kName, text_.substr(begin, at_ - begin), begin);
      } else {
        LOCKSTEP_RETURN_IF_ERROR(op(open));
      }
    }
  }

  Status op(std::vector<char>& open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view candidate : kOperators) {
      if (text_.compare(at_, candidate.size(), candidate) != 0) continue;
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) return error(at_, std::string("unexpected '") + c + "'");
        open.pop_back();
      }
      push(Kind::kOperator, std::string(candidate), at_);
      at_ += candidate.size();
      return ok_status();
    }
    const Utf8Char bad = next_utf8(text_, at_);
    return error(at_, "unexpected '" + text_.substr(at_, static_cast<size_t>(bad.length_bytes)) + "'");
  }

  Status number() {
    const size_t begin = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '_')) ++at_;
    };
    digits();
    bool is_float = false;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
      is_float = true;
      ++at_;
      digits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      size_t power = at_ + 1;
      if (power < text_.size() && (text_[power] == '+' || text_[power] == '-')) ++power;
      if (power < text_.size() && is_digit(text_[power])) {
        is_float = true;
        at_ = power;
        digits();
      }
    }
    std::string spelled = text_.substr(begin, at_ - begin);
    const bool odd = spelled.find("__") != std::string::npos || spelled.back() == '_' ||
                     (!is_float && spelled.size() > 1 && spelled[0] == '0') ||
                     (at_ < text_.size() && is_name_start(text_[at_]));
    if (odd) return error(begin, "number '" + spelled + "' is not supported (decimal numbers are)");
    spelled.erase(std::remove(spelled.begin(), spelled.end(), '_'), spelled.end());
    JinjaToken& token = push(is_float ? Kind::kFloat : Kind::kInt, spelled, begin);
    const char* end = spelled.data() + spelled.size();
    const auto result = is_float ? std::from_chars(spelled.data(), end, token.float_value)
                                 : std::from_chars(spelled.data(), end, token.int_value);
    if (result.ec != std::errc() || result.ptr != end) return error(begin, "number out of range");
    return ok_status();
  }

  Status string(char quote) {
    const size_t begin = at_;
    std::string value;
    for (++at_; at_ < text_.size() && text_[at_] != quote;) {
      if (text_[at_] != '\\') {
        value += text_[at_++];
        continue;
      }
      if (at_ + 1 >= text_.size()) break;
      LOCKSTEP_RETURN_IF_ERROR(escape(value));
    }
    if (at_ >= text_.size()) return error(begin, "a string does not end");
    ++at_;
    push(Kind::kString, std::move(value), begin);
    return ok_status();
  }

  // Python's escapes; an unknown one stays as it is written.
  Status escape(std::string& value) {
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[at_ + 1];
    const size_t simple = kNames.find(c);
    if (simple != std::string_view::npos) {
      value += kValues[simple];
      at_ += 2;
      return ok_status();
    }
    if (c == '\n') {  // a line that goes on
      at_ += 2;
      return ok_status();
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (digits > 0) {
      const char* first = text_.data() + at_ + 2;
      const bool fits = at_ + 2 + digits <= text_.size();
      const auto result = std::from_chars(first, first + (fits ? digits : 0), code, 16);
      if (!fits || result.ptr != first + digits || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        return error(at_, "a broken escape in a string");
      }
      at_ += 2 + digits;
      append_utf8(value, code);
      return ok_status();
    }
    if (c >= '0' && c <= '7') {
      size_t end = at_ + 1;
      while (end < text_.size() && end < at_ + 4 && text_[end] >= '0' && text_[end] <= '7') ++end;
      std::from_chars(text_.data() + at_ + 1, text_.data() + end, code, 8);
      at_ = end;
      append_utf8(value, code);
      return ok_status();
    }
    if (c == 'N') return error(at_, "\\N{...} in a string is not supported");
    value += '\\';
    ++at_;
    return ok_status();
  }

  std::string text_;
  size_t at_ = 0;
  size_t counted_to_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

Result<std::vector<JinjaToken>> lex_jinja(std::string_view source) {
  if (find_invalid_utf8(source)) return invalid("chat template is no UTF-8");
  return Lexer(source).run();
}

}  // namespace lockstep::data
