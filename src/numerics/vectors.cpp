// SPDX-License-Identifier: Apache-2.0
#include "numerics/vectors.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <sstream>

#include "numerics/bfloat16.h"
#include "numerics/digest.h"
#include "numerics/fixed_point.h"
#include "numerics/math.h"
#include "numerics/philox.h"
#include "numerics/reduce.h"
#include "numerics/tc16.h"

namespace lockstep::numerics {
namespace {

using Words = std::vector<uint64_t>;

std::string hex32(uint32_t x) {
  return fmt::format("{:08x}", x);
}
std::string hex64(uint64_t x) {
  return fmt::format("{:016x}", x);
}

struct Function32 {
  const char* name;
  float (*function)(float);
};
struct Function64 {
  const char* name;
  double (*function)(double);
};
// Through lambdas: the functions are overloaded.
constexpr Function32 kFunctions32[] = {
    {"exp_f32", [](float x) { return numerics::exp(x); }},
    {"log_f32", [](float x) { return numerics::log(x); }},
    {"sigmoid_f32", [](float x) { return numerics::sigmoid(x); }},
    {"rsqrt_f32", [](float x) { return numerics::rsqrt(x); }},
    {"exp2_fraction", [](float x) { return exp2_fraction(x); }},
    {"round_even", [](float x) { return round_even(x); }},
};
constexpr Function64 kFunctions64[] = {
    {"exp_f64", [](double x) { return numerics::exp(x); }},
    {"exp2_f64", [](double x) { return numerics::exp2(x); }},
    {"log_f64", [](double x) { return numerics::log(x); }},
    {"log2_f64", [](double x) { return numerics::log2(x); }},
    {"sin_f64", [](double x) { return numerics::sin(x); }},
    {"cos_f64", [](double x) { return numerics::cos(x); }},
};

// Element i of stream s: int32 of the low word of draw(1, kData, 0, s, i), times 2^-31 (one rounding).
template <typename T>
std::vector<T> stream(uint32_t s, int64_t n) {
  std::vector<T> out;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = draw(1, Purpose::kData, 0, s, static_cast<uint32_t>(i));
    out.push_back(static_cast<T>(static_cast<int32_t>(static_cast<uint32_t>(bits))) *
                  static_cast<T>(0x1p-31));
  }
  return out;
}

// Byte i is (i * factor + start) mod 256.
Digest128 pattern_digest(uint64_t n, uint64_t factor, uint64_t start) {
  std::vector<unsigned char> bytes(n);
  for (uint64_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(i * factor + start);
  return digest_bytes(bytes.data(), bytes.size());
}

std::string tc16_answer(const Words& w) {
  uint16_t a[16];
  uint16_t b[16];
  for (size_t k = 0; k < 16; ++k) {
    a[k] = static_cast<uint16_t>(w[1 + k]);
    b[k] = static_cast<uint16_t>(w[17 + k]);
  }
  return hex32(tc16_step_bits(static_cast<uint32_t>(w[0]), a, b));
}

std::string row_dot_answer(bool wide, int64_t n) {
  if (!wide) {
    const auto a = stream<float>(0, n);
    const auto b = stream<float>(1, n);
    return hex32(float_bits(row_dot(a.data(), b.data(), n)));
  }
  const auto a = stream<double>(0, n);
  const auto b = stream<double>(1, n);
  return hex64(double_bits(row_dot(a.data(), b.data(), n)));
}

std::string philox_answer(const Words& w) {
  const auto c = [&](size_t i) { return static_cast<uint32_t>(w[i]); };
  const Philox4 out = philox4x32(w[0], c(1), c(2), c(3), c(4));
  return hex32(out.x[0]) + " " + hex32(out.x[1]) + " " + hex32(out.x[2]) + " " + hex32(out.x[3]);
}

struct Other {
  const char* name;
  size_t arguments;
  std::string (*answer)(const Words& w);
};
constexpr Other kOthers[] = {
    {"scale_by_pow2", 2,
     [](const Words& w) {
       const auto e = static_cast<int>(static_cast<int64_t>(w[1]));
       return hex32(float_bits(scale_by_pow2(float_from_bits(static_cast<uint32_t>(w[0])), e)));
     }},
    {"philox", 5, philox_answer},
    {"draw", 5,
     [](const Words& w) {
       return hex64(draw(w[0], static_cast<Purpose>(w[1]), w[2], static_cast<uint32_t>(w[3]),
                         static_cast<uint32_t>(w[4])));
     }},
    {"to_fixed", 1,
     [](const Words& w) {
       return hex64(static_cast<uint64_t>(gradient_to_fixed(float_from_bits(static_cast<uint32_t>(w[0])))));
     }},
    {"from_fixed", 1,
     [](const Words& w) { return hex32(float_bits(gradient_from_fixed(static_cast<int64_t>(w[0])))); }},
    {"gradient_bound", 1,
     [](const Words& w) { return hex32(float_bits(gradient_bound(static_cast<int64_t>(w[0])))); }},
    {"to_bfloat16", 1,
     [](const Words& w) {
       return fmt::format("{:04x}", float_to_bfloat16(float_from_bits(static_cast<uint32_t>(w[0]))));
     }},
    {"row_dot_f32", 1, [](const Words& w) { return row_dot_answer(false, static_cast<int64_t>(w[0])); }},
    {"row_dot_f64", 1, [](const Words& w) { return row_dot_answer(true, static_cast<int64_t>(w[0])); }},
    {"digest", 3, [](const Words& w) { return pattern_digest(w[0], w[1], w[2]).hex(); }},
    {"tc16", 33, tc16_answer},
};

}  // namespace

Result<std::string> evaluate_vector(const std::string& question) {
  std::istringstream in(question);
  std::string name;
  in >> name;
  Words words;
  for (std::string text; in >> text;) {
    if (text.size() > 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return invalid("{}: {} is not a hexadecimal argument", name, text);
    }
    uint64_t word = 0;
    std::from_chars(text.data(), text.data() + text.size(), word, 16);
    words.push_back(word);
  }
  const auto want = [&](size_t count) {
    return words.size() == count ? ok_status()
                                 : invalid("{}: {} arguments, {} expected", name, words.size(), count);
  };
  for (const Function32& f : kFunctions32) {
    if (name != f.name) continue;
    LOCKSTEP_RETURN_IF_ERROR(want(1));
    return hex32(float_bits(f.function(float_from_bits(static_cast<uint32_t>(words[0])))));
  }
  for (const Function64& f : kFunctions64) {
    if (name != f.name) continue;
    LOCKSTEP_RETURN_IF_ERROR(want(1));
    return hex64(double_bits(f.function(double_from_bits(words[0]))));
  }
  for (const Other& f : kOthers) {
    if (name != f.name) continue;
    LOCKSTEP_RETURN_IF_ERROR(want(f.arguments));
    return f.answer(words);
  }
  return invalid("no known answers are kept for '{}'", name);
}

namespace {

void ask_functions(std::vector<std::string>* out) {
  const float inf = float_from_bits(0x7F800000U);
  const float nan = float_from_bits(0x7F800001U);
  const float values[] = {0.0F,    0x1p-149F, 0x1p-126F, 0x1p-30F, 0.125F, 0.5F,  0.75F,  1.0F,
                          1.0001F, 1.5F,      2.0F,      2.71828F, 10.0F,  50.5F, 88.72F, 88.73F,
                          103.9F,  104.5F,    1e10F,     3.4e38F,  inf,    nan};
  const double inf64 = double_from_bits(kInfinity64Bits);
  const double nan64 = double_from_bits(kInfinity64Bits + 1);
  const double wide[] = {0.0,     0x1p-1074, 0x1p-1022, 0x1p-40, 0.1,   0.5,    0.7,   1.0,    1.0001, 1.5,
                         2.0,     2.5,       3.14159,   10.0,    100,   709.7,  745.0, 1023.5, 1e5,    355.0,
                         1048575, 1e7,       0x1p24,    1e18,    1e300, 0x1p30, inf64, nan64};
  for (const Function32& f : kFunctions32) {
    const std::string name = f.name;
    for (const float x : values) {
      if (name == "exp2_fraction" && !(x <= 0.5F)) continue;
      if (name == "round_even" && !(x < 0x1p22F)) continue;
      out->push_back(fmt::format("{} {}", f.name, hex32(float_bits(x))));
      out->push_back(fmt::format("{} {}", f.name, hex32(float_bits(-x))));
    }
    for (const float x : stream<float>(2, 40)) {
      const float scaled = name == "exp2_fraction" ? x * 0.5F : x * 40;
      out->push_back(fmt::format("{} {}", f.name, hex32(float_bits(scaled))));
    }
  }
  for (const Function64& f : kFunctions64) {
    for (const double x : wide) {
      out->push_back(fmt::format("{} {}", f.name, hex64(double_bits(x))));
      out->push_back(fmt::format("{} {}", f.name, hex64(double_bits(-x))));
    }
    for (const double x : stream<double>(3, 40)) {
      out->push_back(fmt::format("{} {}", f.name, hex64(double_bits((x + 1) * 300))));
    }
  }
}

void ask_integers(std::vector<std::string>* out) {
  for (const int64_t e : {127, 1, 0, -1, -40, -126, -127, -1000}) {
    out->push_back(fmt::format("scale_by_pow2 3f9d70a4 {}", hex64(static_cast<uint64_t>(e))));
  }
  out->push_back("philox 0 0 0 0 0");
  out->push_back("philox ffffffffffffffff ffffffff ffffffff ffffffff ffffffff");
  out->push_back("philox 299f31d0a4093822 243f6a88 85a308d3 13198a2e 03707344");
  for (int purpose = 0; purpose <= 5; ++purpose) {
    out->push_back(fmt::format("draw 2a {:x} 0 0 0", purpose));
    out->push_back(fmt::format("draw ffffffffffffffff {:x} 00ffffffffffffff 7 3ff", purpose));
  }
  for (uint32_t position = 1; position < 8; ++position) {
    out->push_back(fmt::format("draw 4d2 0 1f {:x} {:x}", position % 3, position));
  }
  for (const float x : {0.0F, 1.0F, -1.0F, 0x1p-44F, 0x1p-45F, 0x1.8p-44F, 0x1.4p-43F, -0x1.8p-44F, 0.1F,
                        -0.1F, 1e-6F, 1e-12F, 12345.678F, 0x1.fffffep17F, -0x1.fffffep17F, 0x1p-149F}) {
    out->push_back(fmt::format("to_fixed {}", hex32(float_bits(x))));
  }
  for (const int64_t x : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{16777217}, int64_t{16777219},
                          int64_t{-16777217}, int64_t{1} << 44, INT64_MAX, INT64_MIN}) {
    out->push_back(fmt::format("from_fixed {}", hex64(static_cast<uint64_t>(x))));
  }
  for (const int pieces : {1, 3, 8, 32, 1000, 262143})
    out->push_back(fmt::format("gradient_bound {:x}", pieces));
  for (const uint32_t x : {0U, 0x3F800000U, 0x3F808000U, 0x3F818000U, 0x3F808001U, 0x7F7FFFFFU, 0x7F800000U,
                           0x7F800001U, 0xFFFFFFFFU, 0x00008000U, 0x00018000U}) {
    out->push_back(fmt::format("to_bfloat16 {}", hex32(x)));
  }
}

void ask_orders(std::vector<std::string>* out) {
  for (const int n : {0, 1, 2, 127, 128, 129, 200, 896, 1000, 4864}) {
    out->push_back(fmt::format("row_dot_f32 {:x}", n));
    out->push_back(fmt::format("row_dot_f64 {:x}", n));
  }
  for (const int n : {0, 1, 3, 4, 7, 8, 100, 4095, 4096, 4097, 8192, 9000, 65536}) {
    out->push_back(fmt::format("digest {:x} 0 0", n));
    out->push_back(fmt::format("digest {:x} 0 ff", n));
    out->push_back(fmt::format("digest {:x} 1 0", n));
    out->push_back(fmt::format("digest {:x} b 5", n));
  }
  for (uint32_t run = 0; run < 24; ++run) {
    const auto a = stream<float>(100 + run, 33);
    std::string question =
        fmt::format("tc16 {}", hex32(float_bits(a[32] * scale_by_pow2(1.0F, static_cast<int>(run % 8) * 3))));
    for (size_t i = 0; i < 32; ++i) {
      const int e = run < 8 ? 0 : static_cast<int>((i * run) % 17) - 8;  // one size, then wide exponents
      question += fmt::format(" {:04x}", float_to_bfloat16(a[i] * scale_by_pow2(1.0F, e)));
    }
    out->push_back(question);
  }
}

}  // namespace

std::vector<std::string> vector_questions() {
  std::vector<std::string> questions;
  ask_functions(&questions);
  ask_integers(&questions);
  ask_orders(&questions);
  return questions;
}

std::string vectors_text() {
  std::string text = fmt::format(
      "# SPDX-License-Identifier: Apache-2.0\n# Known answers of numerics version {}: docs/numerics.md, "
      "Known "
      "answers. All values hexadecimal; floats by their bits.\n",
      kNumericsVersion);
  for (const std::string& question : vector_questions()) {
    const auto answer = evaluate_vector(question);
    LOCKSTEP_CHECK(answer.ok(), answer.status().message());
    text += question + " = " + answer.value() + "\n";
  }
  return text;
}

}  // namespace lockstep::numerics
