// SPDX-License-Identifier: Apache-2.0
#include "tasks/math/expression.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "tasks/math/algebra.h"
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr size_t kMaxBytes = 2'000;
constexpr int kMaxDepth = 128;  // two a parenthesis
constexpr size_t kMaxLetters = 2;

// Words that are no product of letters: signs of the infinite and the undefined, connectives, functions.
constexpr std::string_view kRefusedWords[] = {"oo", "zoo", "nan", "as", "if", "in", "is",
                                              "or", "all", "id",  "li", "re", "im"};
// Greek letters of two Latin ones stay one letter.
constexpr std::string_view kWordSymbols[] = {"pi", "mu", "nu", "xi"};

// expr := term (+|- term)*; term := unary (*|/|nothing unary)*; unary := (+|-) unary | power;
// power := postfix (^|** unary)?; postfix := primary !*; primary := number | word | ( expr ).
// Juxtaposition binds like *: 1/2x is x/2.
class Parser {
 public:
  Parser(Algebra& algebra, std::string_view text) : algebra_(algebra), text_(text) {}

  Value parse() {
    Value value = expression();
    if (at_ != text_.size()) algebra_.fail();
    return value;
  }

 private:
  Value zero() { return algebra_.number({}); }
  Value bad() {
    algebra_.fail();
    return zero();
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Value expression() {
    Value sum = term();
    while (!algebra_.failed() && (peek() == '+' || peek() == '-')) {
      const bool minus = text_[at_++] == '-';
      const Value next = term();
      sum = minus ? algebra_.subtract(sum, next) : algebra_.add(sum, next);
    }
    return sum;
  }

  Value term() {
    Value product = unary();
    while (!algebra_.failed()) {
      if (peek() == '*') {
        ++at_;
        product = algebra_.multiply(product, unary());
      } else if (peek() == '/') {
        ++at_;
        product = algebra_.divide(product, unary());
      } else if (starts_primary()) {
        product = algebra_.multiply(product, power());
      } else {
        break;
      }
    }
    return product;
  }

  Value unary() {
    if (++depth_ > kMaxDepth) return bad();
    Value value;
    if (peek() == '+') {
      ++at_;
      value = unary();
    } else if (peek() == '-') {
      ++at_;
      value = algebra_.subtract(zero(), unary());
    } else {
      value = power();
    }
    --depth_;
    return value;
  }

  Value power() {
    Value base = primary();
    while (!algebra_.failed() && peek() == '!') {
      ++at_;
      base = algebra_.factorial(base);
    }
    if (algebra_.failed() || !(take("^") || take("**"))) return base;
    return algebra_.power(base, unary());
  }

  bool starts_primary() const {
    const char c = peek();
    if (c == '\0' || is_digit(c) || c == '.' || c == '(') return c != '\0';
    return is_letter(code_point_at(text_, at_).value);
  }

  Value primary() {
    if (algebra_.failed() || !starts_primary()) return bad();
    if (++depth_ > kMaxDepth) return bad();
    Value value = peek() == '(' ? parenthesis() : is_digit(peek()) || peek() == '.' ? number() : word();
    --depth_;
    return value;
  }

  Value parenthesis() {
    if (!take("(")) return bad();
    Value value = expression();
    if (!take(")")) return bad();
    return value;
  }

  Value number() {
    const size_t begin = at_;
    while (is_digit(peek()) || peek() == '.') ++at_;
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
    if (peek() == 'e' && is_digit(peek(1 + sign))) {
      at_ += 1 + sign;
      while (is_digit(peek())) ++at_;
    }
    if (peek() == '_') return bad();  // a numeral of another base
    const std::optional<Decimal> decimal = parse_decimal(text_.substr(begin, at_ - begin));
    const std::optional<Rational> value = decimal ? to_rational(*decimal) : std::nullopt;
    return value ? algebra_.number(*value) : bad();
  }

  // One factor of a word: a function, pi, a letter with or without a subscript. The rest of the word follows
  // as the next factor.
  Value word() {
    if (take("sqrt")) return root();
    if (take("ln")) return peek() == '(' ? algebra_.log(parenthesis()) : bad();
    const size_t end = word_end();
    const std::string_view whole = text_.substr(at_, end - at_);
    if (!in_word_) {
      for (const std::string_view refused : kRefusedWords) {
        if (whole == refused) return bad();
      }
      for (const std::string_view symbol : kWordSymbols) {
        if (whole == symbol) {
          at_ = end;
          return algebra_.symbol(symbol);
        }
      }
    }
    size_t size = code_point_at(text_, at_).size_bytes;
    if (peek(size) == '_') {
      ++size;
      while (is_digit(peek(size)) || is_ascii_letter(peek(size))) ++size;
    }
    const std::string_view name = text_.substr(at_, size);
    at_ += size;
    in_word_ = at_ < end;
    return algebra_.symbol(name);
  }

  size_t word_end() const {
    size_t i = at_;
    while (i < text_.size()) {
      const CodePoint c = code_point_at(text_, i);
      if (!is_letter(c.value) || text_.substr(i, 4) == "sqrt") break;
      i += c.size_bytes;
    }
    return i;
  }

  Value root() {
    in_word_ = false;
    if (peek() == '(') return algebra_.sqrt(parenthesis());
    if (is_digit(peek()) || peek() == '.') return algebra_.sqrt(number());
    return bad();
  }

  Algebra& algebra_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_word_ = false;  // at_ is inside a word whose first letters were taken
};

void collect_letters(std::string_view text, std::set<uint32_t>& letters) {
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 4) == "sqrt" || text.substr(i, 4) == "frac") {
      i += 4;
      continue;
    }
    const CodePoint c = code_point_at(text, i);
    if (is_letter(c.value)) letters.insert(c.value);
    i += c.size_bytes;
  }
}

// Powers that could be large, or whose braces are gone.
bool has_refused_power(std::string_view text) {
  for (size_t at = text.find('^'); at != std::string_view::npos; at = text.find('^', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && is_digit(text[end])) ++end;
    const size_t digits = end - at - 1;
    const char next = end < text.size() ? text[end] : '\0';
    if (digits >= 2 || (digits == 1 && next == '^') || (digits == 0 && (next == '{' || next == '('))) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool symbolically_equal(std::string_view a, std::string_view b) {
  if (a.size() > kMaxBytes || b.size() > kMaxBytes) return false;
  if (has_refused_power(a) || has_refused_power(b)) return false;
  std::set<uint32_t> letters;
  collect_letters(a, letters);
  collect_letters(b, letters);
  if (letters.size() > kMaxLetters) return false;
  Algebra algebra;
  const Value left = Parser(algebra, a).parse();
  if (algebra.failed()) return false;
  const Value right = Parser(algebra, b).parse();
  return !algebra.failed() && algebra.equal(left, right) && !algebra.failed();
}

}  // namespace lockstep::tasks
