// SPDX-License-Identifier: Apache-2.0
// Exact arithmetic of fractions of polynomials over the rationals, in letters, pi, square roots, logarithms
// and powers with a symbol in the exponent.
//
// Zero is decided by form alone, never by floating point: an expression that reduces to the zero polynomial
// is zero. Square roots of primes are independent over the rationals, so for fractions of polynomials with
// square roots of rationals the converse holds too; for nested roots, logarithms and powers it may not (then
// two equal values count as different).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tasks/number.h"

namespace lockstep::tasks {

using AtomId = uint16_t;
// (atom, power >= 1), ascending; {} is 1.
using Monomial = std::vector<std::pair<AtomId, uint16_t>>;
// No zero coefficients; {} is 0.
using Polynomial = std::map<Monomial, Rational>;

struct Value {
  Polynomial num;
  Polynomial den;  // never zero; 1 unless a letter, pi, logarithm or power is in it
};

// One comparison. An operation that overflows, divides by zero, or spends the budget sets failed(), and every
// later one answers zero at once: ask failed() before trusting a result.
class Algebra {
 public:
  bool failed() const { return failed_; }
  void fail() { failed_ = true; }

  Value number(const Rational& value);
  Value symbol(std::string_view name);

  Value add(const Value& a, const Value& b);
  Value subtract(const Value& a, const Value& b);
  Value multiply(const Value& a, const Value& b);
  Value divide(const Value& a, const Value& b);
  // Integer and half-integer exponents exactly; others become an atom of (base, exponent).
  Value power(const Value& base, const Value& exponent);
  // The principal root; sqrt(-1) is an atom of square -1.
  Value sqrt(const Value& value);
  // Of a positive rational; anything else fails.
  Value log(const Value& value);
  Value factorial(const Value& value);
  bool equal(const Value& a, const Value& b);

 private:
  struct Atom {
    enum class Kind { kSymbol, kRoot, kLog, kPower };
    Kind kind = Kind::kSymbol;
    std::string name;   // of a symbol
    Value key;          // root: its radicand; log: the prime; power: the base
    Value exponent;     // of a power
    Polynomial square;  // of a root: what its square is, in earlier atoms
  };

  bool spend(int64_t work);
  AtomId new_atom(Atom atom);
  const Atom* find(Atom::Kind kind, const Value& key, const Value& exponent, AtomId* id);
  Value atom_value(AtomId id);

  void add_term(Polynomial& sum, const Monomial& monomial, const Rational& coefficient);
  Polynomial add(const Polynomial& a, const Polynomial& b);
  Polynomial scale(const Polynomial& a, const Rational& factor);
  Polynomial multiply(const Polynomial& a, const Polynomial& b);
  // Adds coefficient * monomial with every root's power reduced to 0 or 1.
  void add_reduced(Polynomial& sum, Monomial monomial, const Rational& coefficient);
  Value make_value(Polynomial num, Polynomial den);

  Value root_of_rational(const Rational& value);
  // sqrt(a + b*sqrt(c)) as a sum of two roots where a*a - b*b*c is a square; else false.
  bool denest(const Polynomial& radicand, Value* root);
  Value root_atom(const Polynomial& num, const Polynomial& den);
  Value integer_power(const Value& base, int64_t exponent);

  std::vector<Atom> atoms_;
  int64_t budget_ = 100'000;
  bool failed_ = false;
};

}  // namespace lockstep::tasks
