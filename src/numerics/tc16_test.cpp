// SPDX-License-Identifier: Apache-2.0
#include "numerics/tc16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/file.h"
#include "numerics/bfloat16.h"
#include "numerics/tc16_check.h"
#include "same_bits.h"

namespace lockstep::numerics {
namespace {

using lockstep::testing::test_data;
using lockstep::testing::TestRandom;

using Operand = std::array<uint16_t, 16>;

Operand only(float first, float second = 0) {
  Operand x{};
  x[0] = float_to_bfloat16(first);
  x[1] = float_to_bfloat16(second);
  return x;
}
uint32_t step(uint32_t acc, const Operand& a, const Operand& b) {
  return tc16_step_bits(acc, a.data(), b.data());
}
uint32_t step(float acc, const Operand& a, const Operand& b) {
  return step(float_bits(acc), a, b);
}

TEST(Tc16, EqualsAnH200OnEveryStoredResult) {
  const auto check = check_tc16_file(test_data("golden/tc16_h200.bin"));
  ASSERT_TRUE(check.ok()) << check.status().message();
  EXPECT_EQ(check.value().total, 208896);
  EXPECT_EQ(check.value().equal, check.value().total) << "first " << check.value().first_difference;
}

TEST(Tc16, ADamagedFileIsNamed) {
  const auto whole = read_file(test_data("golden/tc16_h200.bin"));
  ASSERT_TRUE(whole.ok());
  const std::string path = ::testing::TempDir() + "lockstep_tc16_damaged.bin";
  const auto expect_invalid = [&](const std::string& contents) {
    ASSERT_TRUE(write_file_atomic(path, contents).ok());
    const auto check = check_tc16_file(path);
    ASSERT_FALSE(check.ok());
    EXPECT_EQ(check.status().code(), StatusCode::kInvalid);
    EXPECT_NE(check.status().message().find(path), std::string::npos) << check.status().message();
  };
  std::string file = whole.value();
  expect_invalid("");
  expect_invalid(file.substr(0, 15));
  expect_invalid(file.substr(0, file.size() - 1));
  expect_invalid(file + '\0');
  for (const size_t byte : {size_t{0}, size_t{4}, size_t{8}, size_t{11}, size_t{12}, size_t{15}}) {
    std::string bad = file;
    bad[byte] = static_cast<char>(bad[byte] ^ 0x40);
    expect_invalid(bad);
  }
  // A wrong result is counted and found.
  file[file.size() - 4] = static_cast<char>(file[file.size() - 4] ^ 1);
  ASSERT_TRUE(write_file_atomic(path, file).ok());
  const auto check = check_tc16_file(path);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check.value().equal, 208895);
  EXPECT_EQ(check.value().first_difference, 208895);
  ASSERT_TRUE(remove_all(path).ok());
  EXPECT_FALSE(check_tc16_file(path).ok());
}

TEST(Tc16, TruncatesTermsAndResult) {
  // 1 + 2^-25: the accumulator is the largest term, the product is its last kept place, then rounded away.
  EXPECT_EQ(step(1.0F, only(0x1p-25F), only(1.0F)), float_bits(1.0F));
  // -1 + 2^-25 = -(1 - 2^-25), toward zero: 1 - 2^-24.
  EXPECT_EQ(step(-1.0F, only(0x1p-25F), only(1.0F)), float_bits(-0x1.fffffep-1F));
  // 2^-26 is below the last kept place.
  EXPECT_EQ(step(-1.0F, only(0x1p-26F), only(1.0F)), float_bits(-1.0F));
  // A product's exponent is that of its operands: 1.5 * 1.5 = 2.25 counts as exponent 0.
  EXPECT_EQ(step(-0x1p-25F, only(1.5F), only(1.5F)), float_bits(0x1.1ffffep+1F));
}

TEST(Tc16, Specials) {
  constexpr float kInf = __builtin_inff();
  EXPECT_EQ(step(0x7F800001U, only(0), only(0)), kTc16NanBits);
  EXPECT_EQ(step(0.0F, only(kInf), only(0.0F)), kTc16NanBits);
  EXPECT_EQ(step(0.0F, only(kInf, -kInf), only(1.0F, 1.0F)), kTc16NanBits);
  EXPECT_EQ(step(-kInf, only(kInf), only(1.0F)), kTc16NanBits);
  EXPECT_EQ(step(0.0F, only(-kInf), only(2.0F)), 0xFF800000U);
  EXPECT_EQ(step(kInf, only(-2.0F), only(2.0F)), 0x7F800000U);
  EXPECT_EQ(step(0.0F, only(0x1.fep127F), only(2.0F)), 0x7F800000U);  // overflow is infinity, not the largest
  EXPECT_EQ(step(-0.0F, only(0.0F), only(0.0F)), 0U);                 // a zero result is +0
  EXPECT_EQ(step(1.0F, only(-1.0F), only(1.0F)), 0U);
  EXPECT_EQ(step(0.0F, only(-0x1p-126F), only(0x1p-30F)), 0U);
  EXPECT_EQ(step(0x80000001U, only(0), only(0)), 0x80000001U);  // subnormals are kept
}

TEST(Tc16, OrderInsideAStepAndRolesDoNotMatter) {
  TestRandom random(11);
  for (int run = 0; run < 20000; ++run) {
    std::array<uint16_t, 16> a{};
    std::array<uint16_t, 16> b{};
    for (int k = 0; k < 16; ++k) {
      a[k] = static_cast<uint16_t>(run % 4 == 0 ? random.next() : float_to_bfloat16(random.value()));
      b[k] = static_cast<uint16_t>(run % 4 == 0 ? random.next() : float_to_bfloat16(random.value()));
    }
    const auto acc = static_cast<uint32_t>(run % 2 == 0 ? random.next() : float_bits(random.value()));
    const uint32_t want = step(acc, a, b);
    ASSERT_EQ(step(acc, b, a), want);
    for (int k = 15; k > 0; --k) {
      const auto other = static_cast<size_t>(random.below(k + 1));
      std::swap(a[static_cast<size_t>(k)], a[other]);
      std::swap(b[static_cast<size_t>(k)], b[other]);
    }
    ASSERT_EQ(step(acc, a, b), want);
  }
}

TEST(Tc16, ZeroProductsChangeNothing) {
  TestRandom random(12);
  for (int run = 0; run < 20000; ++run) {
    const auto acc = static_cast<uint32_t>(random.next());
    if ((acc & 0x7F800000U) == 0x7F800000U || acc == 0x80000000U) continue;
    EXPECT_EQ(step(acc, Operand{}, only(1.0F)), acc);
  }
}

}  // namespace
}  // namespace lockstep::numerics
