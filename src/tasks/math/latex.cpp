// SPDX-License-Identifier: Apache-2.0
#include "tasks/math/latex.h"

#include <algorithm>

#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr int kMaxDepth = 64;

struct Replacement {
  std::string_view command;
  std::string_view text;
};

constexpr Replacement kSymbols[] = {{"cdot", "*"},
                                    {"times", "*"},
                                    {"ast", "*"},
                                    {"div", "/"},
                                    {"pi", "pi"},
                                    {"infty", "inf"},
                                    {"cup", "U"},
                                    {"cap", "\u2229"},
                                    {"pm", "\u00B1"},
                                    {"mp", "\u2213"},
                                    {"le", "\u2264"},
                                    {"leq", "\u2264"},
                                    {"ge", "\u2265"},
                                    {"geq", "\u2265"},
                                    {"ne", "\u2260"},
                                    {"neq", "\u2260"},
                                    {"lt", "<"},
                                    {"gt", ">"},
                                    {"in", "\u2208"},
                                    {"approx", "\u2248"},
                                    {"to", "\u2192"},
                                    {"mid", "|"},
                                    {"vert", "|"},
                                    {"lbrace", ""},
                                    {"rbrace", ""},
                                    {"emptyset", "\u2205"},
                                    {"varnothing", "\u2205"},
                                    {"ldots", "..."},
                                    {"cdots", "..."},
                                    {"dots", "..."},
                                    {"alpha", "\u03B1"},
                                    {"beta", "\u03B2"},
                                    {"gamma", "\u03B3"},
                                    {"delta", "\u03B4"},
                                    {"epsilon", "\u03B5"},
                                    {"varepsilon", "\u03B5"},
                                    {"zeta", "\u03B6"},
                                    {"eta", "\u03B7"},
                                    {"theta", "\u03B8"},
                                    {"kappa", "\u03BA"},
                                    {"lambda", "\u03BB"},
                                    {"mu", "\u03BC"},
                                    {"nu", "\u03BD"},
                                    {"xi", "\u03BE"},
                                    {"rho", "\u03C1"},
                                    {"sigma", "\u03C3"},
                                    {"tau", "\u03C4"},
                                    {"phi", "\u03C6"},
                                    {"varphi", "\u03C6"},
                                    {"chi", "\u03C7"},
                                    {"psi", "\u03C8"},
                                    {"omega", "\u03C9"},
                                    {"Delta", "\u0394"},
                                    {"Sigma", "\u03A3"},
                                    {"Omega", "\u03A9"},
                                    {"ln", "ln"},
                                    {"log", "log"},
                                    {"exp", "exp"},
                                    {"sin", "sin"},
                                    {"cos", "cos"},
                                    {"tan", "tan"},
                                    {"cot", "cot"},
                                    {"sec", "sec"},
                                    {"csc", "csc"},
                                    {"arcsin", "arcsin"},
                                    {"arccos", "arccos"},
                                    {"arctan", "arctan"},
                                    {"max", "max"},
                                    {"min", "min"},
                                    {"gcd", "gcd"},
                                    {"quad", " "},
                                    {"qquad", " "}};

// Their argument is what counts; size, style and delimiters say nothing.
constexpr std::string_view kTransparent[] = {
    "text",         "textbf",    "textit", "textrm", "textnormal", "mbox",       "mathrm",
    "mathbf",       "mathit",    "mathsf", "mathbb", "mathcal",    "boldsymbol", "operatorname",
    "displaystyle", "textstyle", "left",   "right",  "big",        "Big",        "bigl",
    "bigr",         "Bigl",      "Bigr",   "boxed"};

bool is_integer(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// A divisor that needs no parentheses: a number, one letter, or a root alone.
bool is_atom(std::string_view text) {
  if (!text.empty() && text.find_first_not_of("0123456789.") == text.npos) return true;
  if (text.size() == 1 || text == "pi") return true;
  const size_t open = text.find('(');
  if ((open != 0 && open != 4) || (open == 4 && text.substr(0, 4) != "sqrt")) return false;
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1 == text.size();
  }
  return false;
}

// A dividend that needs none: no sum. A leading minus is no sum.
bool is_product(std::string_view text) {
  return text.find_first_of("+-", 1) == text.npos || is_atom(text);
}

class Converter {
 public:
  explicit Converter(std::string_view text) : text_(text) {}

  std::optional<std::string> convert() {
    std::string out;
    while (at_ < text_.size() && !too_deep_) step(out);
    if (too_deep_) return std::nullopt;
    return out;
  }

 private:
  // One character, group or command.
  void step(std::string& out) {
    const char c = text_[at_];
    if (c == '\\') {
      command(out);
    } else if (c == '{' && out.ends_with('^')) {
      out += exponent();
    } else if (c == '{') {
      group(out);
    } else if (c == '~') {
      out += ' ';
      ++at_;
    } else if (c == '}') {  // without its brace
      ++at_;
    } else {
      if (after_fraction_ && is_digit(c)) out += '*';
      if (c != ' ') after_fraction_ = false;
      out += c;
      ++at_;
    }
  }

  // Braces that only group: their content goes on where the text before them stopped.
  void group(std::string& out) {
    if (++depth_ > kMaxDepth) {
      too_deep_ = true;
      return;
    }
    ++at_;
    while (at_ < text_.size() && text_[at_] != '}' && !too_deep_) step(out);
    if (at_ < text_.size()) ++at_;
    --depth_;
  }

  // An exponent of more than one sign stays visible in parentheses: x^{ab} is not x^ab.
  std::string exponent() {
    const std::string inner = argument();
    return is_integer(inner) || code_point_count(inner) <= 1 ? inner : "(" + inner + ")";
  }

  static size_t code_point_count(std::string_view text) {
    size_t count = 0;
    for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
    return count;
  }

  // The next group, command or single character, converted by itself.
  std::string argument() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    std::string out;
    if (at_ >= text_.size()) return out;
    if (++depth_ > kMaxDepth) {
      too_deep_ = true;
      return out;
    }
    after_fraction_ = false;
    if (text_[at_] == '{') {
      group(out);
    } else if (text_[at_] == '\\') {
      command(out);
    } else {
      const size_t size = code_point_at(text_, at_).size_bytes;
      out = text_.substr(at_, size);
      at_ += size;
    }
    after_fraction_ = false;
    --depth_;
    return std::string(strip(out));
  }

  void command(std::string& out) {
    const size_t begin = at_++;
    size_t end = at_;
    while (end < text_.size() && is_ascii_letter(text_[end])) ++end;
    if (end == at_) {
      sign_command(out);
      return;
    }
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    if (name == "frac" || name == "dfrac" || name == "tfrac" || name == "cfrac") {
      fraction(out);
      return;
    }
    if (name == "sqrt") {
      root(out);
      return;
    }
    if (std::find(std::begin(kTransparent), std::end(kTransparent), name) != std::end(kTransparent)) return;
    skip_blanks();
    after_fraction_ = false;
    for (const Replacement& symbol : kSymbols) {
      if (symbol.command != name) continue;
      out += symbol.text;
      return;
    }
    out += text_.substr(begin, at_ - begin);
  }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  // Backslash and a sign: \, \; \: \  are blanks, \! is nothing, \{ \} are braces, \% \$ \& \# \_ \| their
  // sign.
  void sign_command(std::string& out) {
    if (at_ >= text_.size()) return;
    const char c = text_[at_++];
    if (c == ',' || c == ';' || c == ':' || c == ' ' || c == '\\') {
      out += ' ';
    } else if (c == '%' || c == '$' || c == '&' || c == '#' || c == '_' || c == '|') {
      out += c;
    } else if (c != '!' && c != '{' && c != '}') {
      out.append("\\").append(1, c);  // no command of LaTeX: as written
    }
  }

  void fraction(std::string& out) {
    const std::string num = argument();
    const std::string den = argument();
    if (too_deep_) return;
    const std::string_view before = strip(out);
    const bool mixed = ends_in_integer(before) && is_integer(num) && is_integer(den);
    std::string text =
        (is_product(num) ? num : "(" + num + ")") + "/" + (is_atom(den) ? den : "(" + den + ")");
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '^') text = "(" + text + ")";
    if (mixed) {
      out += ' ';
    } else if (!before.empty() && is_digit(before.back())) {
      out += '*';
    }
    out += text;
    after_fraction_ = true;
  }

  // "3", "-3", "x+3"; not "1/3", "2.3", "x^3".
  static bool ends_in_integer(std::string_view text) {
    size_t begin = text.size();
    while (begin > 0 && is_digit(text[begin - 1])) --begin;
    if (begin == text.size()) return false;
    constexpr std::string_view kMayPrecede = "+-=([,< ";
    return begin == 0 || kMayPrecede.find(text[begin - 1]) != std::string_view::npos;
  }

  void root(std::string& out) {
    skip_blanks();
    std::string index;
    if (at_ < text_.size() && text_[at_] == '[') {
      const size_t close = std::min(text_.find(']', at_), text_.size());
      index = strip(text_.substr(at_ + 1, close - at_ - 1));
      at_ = std::min(close + 1, text_.size());
    }
    const std::string inner = argument();
    out += index.empty() || index == "2" ? "sqrt(" : "root[" + index + "](";
    out += inner;
    out += ')';
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool too_deep_ = false;
  bool after_fraction_ = false;  // a digit that follows would join the divisor
};

}  // namespace

std::optional<std::string> latex_to_plain(std::string_view latex) {
  return Converter(latex).convert();
}

}  // namespace lockstep::tasks
