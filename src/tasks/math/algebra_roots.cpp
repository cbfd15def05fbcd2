// SPDX-License-Identifier: Apache-2.0
// Square roots and logarithms of Algebra: both need prime factors.
#include <algorithm>
#include <optional>

#include "tasks/math/algebra.h"

namespace lockstep::tasks {
namespace {

constexpr int64_t kTrialLimit = 65'536;  // a factor whose primes are all larger counts as one prime

// What factorize(n) costs of the budget: 128-bit remainders are slow.
int64_t factor_work(Int128 n) {
  return n <= INT64_MAX ? 1'000 : 10'000;
}

const Value& no_value() {
  static const Value kNone;
  return kNone;
}

// Floor of the square root of n >= 0, bit by bit.
Int128 integer_root(Int128 n) {
  Int128 root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const Int128 next = root + (static_cast<Int128>(1) << bit);
    if (next <= n / next) root = next;
  }
  return root;
}

std::optional<Rational> rational_root(const Rational& value) {
  if (value.num < 0) return std::nullopt;
  const Int128 num = integer_root(value.num);
  const Int128 den = integer_root(value.den);
  if (num * num != value.num || den * den != value.den) return std::nullopt;
  return Rational{num, den};
}

struct PrimePower {
  Int128 prime = 0;
  int power = 0;
};

std::vector<PrimePower> factorize(Int128 n) {
  std::vector<PrimePower> out;
  for (int64_t p = 2; p < kTrialLimit && n > 1; p += p == 2 ? 1 : 2) {
    if (static_cast<Int128>(p) * p > n) break;
    // One 64-bit remainder where it is enough: trial division is the bulk of the work here.
    const auto divides = [&] { return n <= INT64_MAX ? static_cast<int64_t>(n) % p == 0 : n % p == 0; };
    int power = 0;
    for (; divides(); n /= p) ++power;
    if (power > 0) out.push_back({p, power});
  }
  if (n == 1) return out;
  const Int128 root = integer_root(n);
  if (root * root == n) {
    out.push_back({root, 2});
  } else {
    out.push_back({n, 1});
  }
  return out;
}

}  // namespace

// sqrt(n/d) = sqrt(n*d)/d; the root of each prime is an atom, so that sqrt(2)*sqrt(3) = sqrt(6).
Value Algebra::root_of_rational(const Rational& value) {
  if (value.is_zero()) return number({});
  if (value.num < 0) {
    const Value positive = root_of_rational({-value.num, value.den});
    return multiply(positive, root_atom(number({-1, 1}).num, number({1, 1}).num));
  }
  if (!spend(factor_work(value.num) + factor_work(value.den))) return number({});
  Rational outside{1, value.den};
  Value out = number({1, 1});
  for (const Int128 part : {value.num, value.den}) {
    for (const PrimePower& factor : factorize(part)) {
      for (int i = 0; i < factor.power / 2; ++i) outside.num *= factor.prime;
      if (factor.power % 2 == 0) continue;
      out = multiply(out, root_atom(number({factor.prime, 1}).num, number({1, 1}).num));
    }
  }
  const std::optional<Rational> reduced = make_rational(outside.num, outside.den);
  if (!reduced) {
    failed_ = true;
    return number({});
  }
  return multiply(out, number(*reduced));
}

// sqrt(num/den) = s/den with the atom s = den*sqrt(num/den), whose square num*den is a polynomial.
Value Algebra::root_atom(const Polynomial& num, const Polynomial& den) {
  if (failed_) return number({});
  const Value radicand{num, den};
  AtomId id = 0;
  if (const Atom* found = find(Atom::Kind::kRoot, radicand, no_value(), &id)) {
    const Polynomial own = found->key.den;
    return make_value(atom_value(id).num, own);
  }
  Atom atom;
  atom.kind = Atom::Kind::kRoot;
  atom.key = radicand;
  atom.square = multiply(num, den);
  const AtomId fresh = new_atom(std::move(atom));
  if (failed_) return number({});
  return make_value(atom_value(fresh).num, den);
}

bool Algebra::denest(const Polynomial& radicand, Value* root) {
  if (radicand.size() != 2 || !radicand.begin()->first.empty()) return false;
  const Rational a = radicand.begin()->second;
  const auto& [monomial, b] = *radicand.rbegin();
  // The monomial is a product of roots of positive primes.
  for (const auto& [id, power] : monomial) {
    const Atom& atom = atoms_[id];
    if (atom.kind != Atom::Kind::kRoot || atom.square.size() != 1) return false;
    if (!atom.square.begin()->first.empty() || atom.square.begin()->second.num < 0) return false;
  }
  const Polynomial with_root = {{monomial, b}};
  const Polynomial b2c = multiply(with_root, with_root);
  if (failed_ || b2c.size() != 1 || a.num <= 0) return false;
  const Rational squared = b2c.begin()->second;
  const std::optional<Rational> a2 = tasks::multiply(a, a);
  const std::optional<Rational> rest = a2 ? tasks::add(*a2, {-squared.num, squared.den}) : std::nullopt;
  const std::optional<Rational> d = rest ? rational_root(*rest) : std::nullopt;
  if (!d) return false;
  const Rational half{1, 2};
  const std::optional<Rational> sum = tasks::add(a, *d);
  const std::optional<Rational> difference = tasks::add(a, {-d->num, d->den});
  if (!sum || !difference) return false;
  const std::optional<Rational> left = tasks::multiply(*sum, half);
  const std::optional<Rational> right = tasks::multiply(*difference, half);
  if (!left || !right) return false;
  const Value first = root_of_rational(*left);
  const Value second = root_of_rational(*right);
  *root = b.num > 0 ? add(first, second) : subtract(first, second);
  return true;
}

Value Algebra::sqrt(const Value& value) {
  if (failed_ || value.num.empty()) return number({});
  const bool fraction = value.den != number({1, 1}).num;
  if (!fraction && value.num.size() == 1 && value.num.begin()->first.empty()) {
    return root_of_rational(value.num.begin()->second);
  }
  // The positive content comes out: sqrt(c*p) = sqrt(c)*sqrt(p) for every c > 0.
  Int128 common = 0;
  Int128 den = 1;
  for (const auto& [monomial, coefficient] : value.num) {
    common = gcd(common, coefficient.num);
    if (__builtin_mul_overflow(den / gcd(den, coefficient.den), coefficient.den, &den)) failed_ = true;
    if (failed_) return number({});
  }
  const std::optional<Rational> content = make_rational(common, den);
  const std::optional<Rational> inverse = content ? tasks::divide({1, 1}, *content) : std::nullopt;
  if (!inverse) {
    failed_ = true;
    return number({});
  }
  const Polynomial primitive = scale(value.num, *inverse);
  const Value outside = root_of_rational(*content);
  if (!fraction) {
    Value root;
    if (denest(primitive, &root)) return multiply(outside, root);
  }
  return multiply(outside, root_atom(primitive, value.den));
}

// log(n/d) as a sum over primes, so that ln(8) = 3*ln(2).
Value Algebra::log(const Value& value) {
  const bool is_number = value.den == number({1, 1}).num && value.num.size() == 1 &&
                         value.num.begin()->first.empty() && value.num.begin()->second.num > 0;
  const Rational argument = is_number ? value.num.begin()->second : Rational{};
  if (failed_ || !is_number || !spend(factor_work(argument.num) + factor_work(argument.den))) {
    failed_ = true;
    return number({});
  }
  Value out = number({});
  for (const auto& [part, sign] : {std::pair<Int128, int>{argument.num, 1}, {argument.den, -1}}) {
    for (const PrimePower& factor : factorize(part)) {
      const Value key = number({factor.prime, 1});
      AtomId id = 0;
      if (find(Atom::Kind::kLog, key, no_value(), &id) == nullptr) {
        Atom atom;
        atom.kind = Atom::Kind::kLog;
        atom.key = key;
        id = new_atom(std::move(atom));
      }
      if (failed_) return number({});
      out = add(out, multiply(atom_value(id), number({sign * factor.power, 1})));
    }
  }
  return out;
}

}  // namespace lockstep::tasks
