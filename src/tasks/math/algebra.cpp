// SPDX-License-Identifier: Apache-2.0
#include "tasks/math/algebra.h"

#include <algorithm>
#include <optional>

namespace lockstep::tasks {
namespace {

constexpr size_t kMaxAtoms = 24;
constexpr size_t kMaxTerms = 600;
constexpr int64_t kMaxPower = 200;

const Polynomial& one() {
  static const Polynomial kOne = {{Monomial{}, Rational{1, 1}}};
  return kOne;
}

std::optional<Rational> constant_of(const Polynomial& p) {
  if (p.empty()) return Rational{};
  if (p.size() == 1 && p.begin()->first.empty()) return p.begin()->second;
  return std::nullopt;
}

std::optional<Rational> constant_of(const Value& value) {
  return value.den == one() ? constant_of(value.num) : std::nullopt;
}

Monomial product(const Monomial& a, const Monomial& b) {
  Monomial out;
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].first < b[j].first)) {
      out.push_back(a[i++]);
    } else if (i == a.size() || b[j].first < a[i].first) {
      out.push_back(b[j++]);
    } else {
      out.emplace_back(a[i].first, static_cast<uint16_t>(a[i].second + b[j].second));
      ++i;
      ++j;
    }
  }
  return out;
}

// Powers stay far below 65,536: a product spends more budget than there is before they could grow so far,
// but a chain of squarings of one term would not.
bool powers_fit(const Monomial& m) {
  return std::all_of(m.begin(), m.end(), [](const auto& factor) { return factor.second <= 20'000; });
}

}  // namespace

bool Algebra::spend(int64_t work) {
  budget_ -= work;
  if (budget_ < 0) failed_ = true;
  return !failed_;
}

AtomId Algebra::new_atom(Atom atom) {
  if (atoms_.size() >= kMaxAtoms) {
    failed_ = true;
    return 0;
  }
  atoms_.push_back(std::move(atom));
  return static_cast<AtomId>(atoms_.size() - 1);
}

Value Algebra::atom_value(AtomId id) {
  return {{{Monomial{{id, 1}}, Rational{1, 1}}}, one()};
}

const Algebra::Atom* Algebra::find(Atom::Kind kind, const Value& key, const Value& exponent, AtomId* id) {
  for (size_t i = 0; i < atoms_.size(); ++i) {
    if (atoms_[i].kind != kind || !equal(atoms_[i].key, key) || !equal(atoms_[i].exponent, exponent))
      continue;
    *id = static_cast<AtomId>(i);
    return &atoms_[i];
  }
  return nullptr;
}

Value Algebra::number(const Rational& value) {
  if (value.is_zero()) return {{}, one()};
  return {{{Monomial{}, value}}, one()};
}

Value Algebra::symbol(std::string_view name) {
  for (size_t i = 0; i < atoms_.size(); ++i) {
    if (atoms_[i].kind == Atom::Kind::kSymbol && atoms_[i].name == name) {
      return atom_value(static_cast<AtomId>(i));
    }
  }
  Atom atom;
  atom.name = name;
  return atom_value(new_atom(std::move(atom)));
}

void Algebra::add_term(Polynomial& sum, const Monomial& monomial, const Rational& coefficient) {
  if (!spend(1) || coefficient.is_zero()) return;
  const auto [at, is_new] = sum.try_emplace(monomial, coefficient);
  if (is_new) {
    if (sum.size() > kMaxTerms) failed_ = true;
    return;
  }
  const std::optional<Rational> total = tasks::add(at->second, coefficient);
  if (!total) {
    failed_ = true;
  } else if (total->is_zero()) {
    sum.erase(at);
  } else {
    at->second = *total;
  }
}

Polynomial Algebra::add(const Polynomial& a, const Polynomial& b) {
  Polynomial sum = a;
  for (const auto& [monomial, coefficient] : b) add_term(sum, monomial, coefficient);
  return sum;
}

Polynomial Algebra::scale(const Polynomial& a, const Rational& factor) {
  Polynomial out;
  if (factor.is_zero()) return out;
  for (const auto& [monomial, coefficient] : a) {
    const std::optional<Rational> scaled = tasks::multiply(coefficient, factor);
    if (!scaled || !spend(1)) {
      failed_ = true;
      return {};
    }
    out.emplace_hint(out.end(), monomial, *scaled);
  }
  return out;
}

void Algebra::add_reduced(Polynomial& sum, Monomial monomial, const Rational& coefficient) {
  if (failed_) return;
  // A root's square is in earlier atoms, so this ends.
  for (auto factor = monomial.rbegin(); factor != monomial.rend(); ++factor) {
    const Atom& atom = atoms_[factor->first];
    if (atom.kind != Atom::Kind::kRoot || factor->second < 2) continue;
    const int squares = factor->second / 2;
    const Polynomial square = atom.square;
    factor->second %= 2;
    if (factor->second == 0) monomial.erase(std::next(factor).base());
    Polynomial rest = {{monomial, coefficient}};
    for (int i = 0; i < squares && !failed_; ++i) rest = multiply(rest, square);
    for (const auto& [m, c] : rest) add_term(sum, m, c);
    return;
  }
  add_term(sum, monomial, coefficient);
}

Polynomial Algebra::multiply(const Polynomial& a, const Polynomial& b) {
  Polynomial sum;
  for (const auto& [left, x] : a) {
    for (const auto& [right, y] : b) {
      const std::optional<Rational> coefficient = tasks::multiply(x, y);
      Monomial monomial = product(left, right);
      if (!coefficient || !spend(2) || !powers_fit(monomial)) {
        failed_ = true;
        return {};
      }
      add_reduced(sum, std::move(monomial), *coefficient);
    }
  }
  return sum;
}

// Roots leave the denominator one by one, the latest first (times its conjugate); then the denominator is
// scaled to a leading coefficient of 1, which makes a constant denominator 1.
Value Algebra::make_value(Polynomial num, Polynomial den) {
  while (!failed_) {
    int latest = -1;
    for (const auto& [monomial, coefficient] : den) {
      for (const auto& [atom, power] : monomial) {
        if (atoms_[atom].kind == Atom::Kind::kRoot) latest = std::max<int>(latest, atom);
      }
    }
    if (latest < 0) break;
    Polynomial conjugate;
    for (const auto& [monomial, coefficient] : den) {
      const bool with_root = std::any_of(monomial.begin(), monomial.end(),
                                         [&](const auto& factor) { return factor.first == latest; });
      conjugate.emplace(monomial, with_root ? Rational{-coefficient.num, coefficient.den} : coefficient);
    }
    num = multiply(num, conjugate);
    den = multiply(den, conjugate);
  }
  if (failed_ || den.empty()) {
    failed_ = true;
    return {{}, one()};
  }
  const Rational lead = den.begin()->second;
  const std::optional<Rational> inverse = tasks::divide({1, 1}, lead);
  if (!inverse) {
    failed_ = true;
    return {{}, one()};
  }
  if (lead == Rational{1, 1}) return {std::move(num), std::move(den)};
  return {scale(num, *inverse), scale(den, *inverse)};
}

Value Algebra::add(const Value& a, const Value& b) {
  if (a.den == b.den) return make_value(add(a.num, b.num), a.den);
  return make_value(add(multiply(a.num, b.den), multiply(b.num, a.den)), multiply(a.den, b.den));
}

Value Algebra::subtract(const Value& a, const Value& b) {
  return add(a, {scale(b.num, {-1, 1}), b.den});
}

Value Algebra::multiply(const Value& a, const Value& b) {
  return make_value(multiply(a.num, b.num), multiply(a.den, b.den));
}

Value Algebra::divide(const Value& a, const Value& b) {
  return make_value(multiply(a.num, b.den), multiply(a.den, b.num));
}

bool Algebra::equal(const Value& a, const Value& b) {
  if (a.den == b.den) return a.num == b.num;
  return multiply(a.num, b.den) == multiply(b.num, a.den) && !failed_;
}

Value Algebra::integer_power(const Value& base, int64_t exponent) {
  if (exponent < 0) return divide(number({1, 1}), integer_power(base, -exponent));
  Value out = number({1, 1});
  for (int64_t i = 0; i < exponent && !failed_; ++i) out = multiply(out, base);
  return out;
}

Value Algebra::power(const Value& base, const Value& exponent) {
  if (failed_) return number({});
  if (base.num.empty()) {  // 0^0 and 0 to a negative or unknown power are no values
    const std::optional<Rational> constant = constant_of(exponent);
    if (!constant || constant->num <= 0) failed_ = true;
    return number({});
  }
  const std::optional<Rational> constant = constant_of(exponent);
  if (constant && (constant->den == 1 || constant->den == 2)) {
    if (constant->num > kMaxPower || constant->num < -kMaxPower) {
      failed_ = true;
      return number({});
    }
    return integer_power(constant->den == 1 ? base : sqrt(base), static_cast<int64_t>(constant->num));
  }
  // b^(-y) is 1/b^y; the sign of the first term decides which of the two the atom is.
  if (!exponent.num.empty() && exponent.num.begin()->second.num < 0) {
    return divide(number({1, 1}), power(base, {scale(exponent.num, {-1, 1}), exponent.den}));
  }
  AtomId id = 0;
  if (find(Atom::Kind::kPower, base, exponent, &id) != nullptr) return atom_value(id);
  Atom atom;
  atom.kind = Atom::Kind::kPower;
  atom.key = base;
  atom.exponent = exponent;
  return atom_value(new_atom(std::move(atom)));
}

Value Algebra::factorial(const Value& value) {
  constexpr int kLargest = 33;  // 33! < 2^127
  const std::optional<Rational> n = constant_of(value);
  if (!n || !n->is_integer() || n->num < 0 || n->num > kLargest) {
    failed_ = true;
    return number({});
  }
  Rational out{1, 1};
  for (int i = 2; i <= static_cast<int>(n->num); ++i) out.num *= i;
  return number(out);
}

}  // namespace lockstep::tasks
