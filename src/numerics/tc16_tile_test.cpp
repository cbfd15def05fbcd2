// SPDX-License-Identifier: Apache-2.0
#include "numerics/tc16_tile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/file.h"
#include "numerics/bfloat16.h"
#include "same_bits.h"

namespace lockstep::numerics {
namespace {

using lockstep::testing::same_bits;
using lockstep::testing::test_data;
using lockstep::testing::TestRandom;

struct NamedTile {
  const char* name;
  Tc16Tile tile;
};

std::vector<NamedTile> tiles() {
  std::vector<NamedTile> out{{"portable", tc16_tile_portable()}};
#if defined(__x86_64__)
  if (tc16_tile_avx2() != nullptr && __builtin_cpu_supports("avx2"))
    out.push_back({"avx2", tc16_tile_avx2()});
  if (tc16_tile_avx512() != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    out.push_back({"avx512", tc16_tile_avx512()});
  }
#endif
  return out;
}

// a [rows, k], b [k, columns] row-major, acc [rows, columns] in and out, by the definition.
void chain(const uint16_t* a, const uint16_t* b, int64_t rows, int64_t k, int64_t columns, float* acc) {
  const int64_t padded = tc16_groups(k) * 16;
  std::vector<uint16_t> x(static_cast<size_t>(padded)), y(static_cast<size_t>(padded));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t i = 0; i < k; ++i) {
        x[static_cast<size_t>(i)] = a[r * k + i];
        y[static_cast<size_t>(i)] = b[i * columns + c];
      }
      for (int64_t g = 0; g < padded; g += 16)
        acc[r * columns + c] = tc16_step(acc[r * columns + c], &x[g], &y[g]);
    }
  }
}

using Generator = uint16_t (*)(TestRandom*);

uint16_t normal(TestRandom* random) {
  return float_to_bfloat16(random->value());
}
uint16_t any_bits(TestRandom* random) {
  return static_cast<uint16_t>(random->next());
}
uint16_t finite_bits(TestRandom* random) {
  while (true) {
    const auto x = static_cast<uint16_t>(random->next());
    if ((x & 0x7F80U) != 0x7F80U) return x;
  }
}
uint16_t wide(TestRandom* random) {
  return float_to_bfloat16(std::ldexp(random->value(), static_cast<int>(random->below(60)) - 30));
}
uint16_t sparse(TestRandom* random) {
  return random->below(4) == 0 ? float_to_bfloat16(random->value())
                               : static_cast<uint16_t>(random->below(2) << 15);
}
uint16_t tiny(TestRandom* random) {
  return static_cast<uint16_t>((random->next() & 0x807FU) | static_cast<uint64_t>(random->below(90) << 7));
}
uint16_t huge(TestRandom* random) {
  return static_cast<uint16_t>((random->next() & 0x807FU) |
                               static_cast<uint64_t>((180 + random->below(76)) << 7));
}
uint16_t largest(TestRandom* random) {  // sums beyond 32 bits
  return static_cast<uint16_t>(random->below(50) == 0 ? 0x3FFEU : 0x3FFFU);
}
uint16_t rarely_special(TestRandom* random) {
  constexpr uint16_t kSpecials[] = {0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81,
                                    0x0000, 0x8000, 0x0001, 0x807F, 0x7F7F};
  return random->below(40) == 0 ? kSpecials[random->below(10)] : float_to_bfloat16(random->value());
}

struct Distribution {
  const char* name;
  Generator a, b;
};
constexpr Distribution kDistributions[] = {
    {"normal", normal, normal},
    {"any bits", any_bits, any_bits},
    {"finite bits", finite_bits, finite_bits},
    {"wide", wide, wide},
    {"sparse", sparse, normal},
    {"sparse both", sparse, sparse},
    {"tiny", tiny, tiny},
    {"tiny and normal", tiny, normal},
    {"huge", huge, huge},
    {"huge and tiny", huge, tiny},
    {"largest", largest, largest},
    {"largest and normal", largest, normal},
    {"specials", rarely_special, wide},
    {"normal, specials", normal, rarely_special},
};

TEST(Tc16Tile, EqualsTheDefinition) {
  TestRandom random(5);
  for (const Distribution& distribution : kDistributions) {
    for (int run = 0; run < 400; ++run) {
      const int64_t rows = 1 + random.below(5);
      const int64_t k = 1 + random.below(70);
      std::vector<uint16_t> a(static_cast<size_t>(rows * k)), b(static_cast<size_t>(k * 16));
      for (uint16_t& x : a) x = distribution.a(&random);
      for (uint16_t& x : b) x = distribution.b(&random);
      std::vector<float> start(static_cast<size_t>(rows * 16));
      for (float& x : start) {
        if (run % 3 == 1) x = random.value();
        if (run % 3 == 2) x = float_from_bits(static_cast<uint32_t>(random.next()));
      }
      std::vector<float> want = start;
      chain(a.data(), b.data(), rows, k, 16, want.data());
      const int64_t groups = tc16_groups(k);
      std::vector<Tc16RowElement> row_elements(static_cast<size_t>(rows * groups * 16));
      for (int64_t r = 0; r < rows; ++r) tc16_expand_row(&a[r * k], 1, k, &row_elements[r * groups * 16]);
      std::vector<Tc16ColumnGroup> columns(static_cast<size_t>(groups));
      if (run % 2 == 0) {
        tc16_expand_columns(b.data(), 16, 1, k, 16, columns.data());
      } else {  // through packed groups
        std::vector<uint16_t> packed(static_cast<size_t>(groups * 256), 0xFFFF);
        tc16_pack_columns(b.data(), 16, 1, k, 16, packed.data());
        tc16_expand_columns(packed.data(), 16, 1, groups * 16, 16, columns.data());
      }
      for (const NamedTile& tile : tiles()) {
        std::vector<float> got = start;
        tile.tile(row_elements.data(), groups * 16, rows, columns.data(), groups, got.data(), 16);
        ASSERT_TRUE(same_bits(want, got)) << tile.name << ", " << distribution.name << ", run " << run;
      }
    }
  }
}

TEST(Tc16Tile, StridesAndMissingColumns) {
  TestRandom random(6);
  for (const int64_t k : {1, 15, 16, 17, 33}) {
    for (const int64_t columns : {1, 7, 16}) {
      std::vector<uint16_t> b(static_cast<size_t>(k * columns));
      std::vector<uint16_t> transposed(b.size());
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t c = 0; c < columns; ++c) b[i * columns + c] = transposed[c * k + i] = normal(&random);
      }
      const auto groups = static_cast<size_t>(tc16_groups(k));
      std::vector<Tc16ColumnGroup> one(groups), other(groups);
      tc16_expand_columns(b.data(), columns, 1, k, columns, one.data());
      tc16_expand_columns(transposed.data(), 1, k, k, columns, other.data());
      EXPECT_EQ(std::memcmp(one.data(), other.data(), groups * sizeof(Tc16ColumnGroup)), 0);
      for (int64_t i = 0; i < static_cast<int64_t>(groups) * 16; ++i) {
        for (int64_t c = 0; c < 16; ++c) {
          const float want = i < k && c < columns ? bfloat16_to_float(b[i * columns + c]) : 0.0F;
          EXPECT_EQ(float_bits(one[i / 16].value[i % 16][c]), float_bits(want));
        }
      }
      std::vector<Tc16RowElement> row(groups * 16), stepped(groups * 16);
      tc16_expand_row(b.data(), columns, k, stepped.data());
      tc16_expand_row(transposed.data(), 1, k, row.data());
      EXPECT_EQ(std::memcmp(row.data(), stepped.data(), row.size() * sizeof(Tc16RowElement)), 0);
    }
  }
}

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// The file of docs/numerics.md, TC16: 64 rows times 8 columns a block.
TEST(Tc16Tile, EqualsAnH200OnEveryStoredResult) {
  const auto file = read_file(test_data("golden/tc16_h200.bin"));
  ASSERT_TRUE(file.ok());
  const char* at = file.value().data();
  const auto distributions = load<uint32_t>(at + 8);
  const auto blocks = static_cast<int64_t>(load<uint32_t>(at + 12));
  at += 16;
  int64_t total = 0;
  for (uint32_t distribution = 0; distribution < distributions; ++distribution) {
    const char* a = at;
    const char* b = a + blocks * 2048;
    const char* c = b + blocks * 256;
    const char* d = c + blocks * 2048;
    for (int64_t block = 0; block < blocks; ++block) {
      std::vector<uint16_t> x(64 * 16), y(16 * 8);
      std::memcpy(x.data(), a + block * 2048, 2048);
      std::memcpy(y.data(), b + block * 256, 256);
      std::vector<Tc16RowElement> rows(64 * 16);
      for (int64_t r = 0; r < 64; ++r) tc16_expand_row(&x[r * 16], 1, 16, &rows[r * 16]);
      Tc16ColumnGroup columns;
      tc16_expand_columns(y.data(), 8, 1, 16, 8, &columns);
      for (const NamedTile& tile : tiles()) {
        std::vector<float> acc(64 * 16);
        for (int64_t i = 0; i < 512; ++i) std::memcpy(&acc[i / 8 * 16 + i % 8], c + block * 2048 + i * 4, 4);
        tile.tile(rows.data(), 16, 64, &columns, 1, acc.data(), 16);
        for (int64_t i = 0; i < 512; ++i) {
          ASSERT_EQ(float_bits(acc[i / 8 * 16 + i % 8]), load<uint32_t>(d + block * 2048 + i * 4))
              << tile.name << " distribution " << distribution << " block " << block << " result " << i;
        }
      }
      total += 512;
    }
    at = d + blocks * 2048;
  }
  EXPECT_EQ(total, 208896);
}

}  // namespace
}  // namespace lockstep::numerics
