// SPDX-License-Identifier: Apache-2.0
// Weight gradients on a Hopper GPU: leaves that share blocks of rows, cut by micro-batches, longer than a
// chunk, out of range.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_bf16.h"
#include "ops/matmul/matmul_bf16_cuda.h"
#include "same_bits.h"
#include "sanitized.h"

namespace lockstep::ops {
namespace {

using cuda::DeviceBuffer;
using testing::same_bits;
using testing::TestRandom;

// Leaves of the given numbers of rows (multiples of 16), one after the other.
struct Update {
  int64_t n, k, lddy, ldx, rows = 0;
  std::vector<int64_t> leaf_rows;
  std::vector<Bf16> dy, x;
  float bound = 0;
};

Update make_update(int64_t n, int64_t k, std::vector<int64_t> leaf_rows, float scale = 1.0F) {
  Update u{n, k, (n + 15) / 8 * 8, (k + 23) / 8 * 8, 0, std::move(leaf_rows), {}, {}, 0};
  for (const int64_t r : u.leaf_rows) u.rows += r;
  TestRandom random(static_cast<uint64_t>(n * 1000 + k));
  for (int64_t i = 0; i < u.rows * u.lddy; ++i)
    u.dy.push_back(numerics::float_to_bfloat16(random.value() * scale));
  for (int64_t i = 0; i < u.rows * u.ldx; ++i) u.x.push_back(numerics::float_to_bfloat16(random.value()));
  u.bound = numerics::gradient_bound(static_cast<int64_t>(u.leaf_rows.size()));
  return u;
}

std::vector<int64_t> start_image(const Update& u) {
  std::vector<int64_t> image(static_cast<size_t>(u.n * u.k));
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<int64_t>(i) * 1000003 - 77;
  return image;
}

// The first leaf with an element out of range, or -1.
int64_t reference(const Update& u, std::vector<int64_t>& image) {
  int64_t first = -1, begin = 0;
  for (size_t leaf = 0; leaf < u.leaf_rows.size(); ++leaf) {
    WeightGradientTarget target;
    target.image = image.data();
    target.bound = u.bound;
    if (!matmul_bf16_weight_gradient_ref(u.dy.data() + begin * u.lddy, u.lddy, u.x.data() + begin * u.ldx,
                                         u.ldx, u.leaf_rows[leaf], u.n, u.k, target) &&
        first < 0)
      first = static_cast<int64_t>(leaf);
    begin += u.leaf_rows[leaf];
  }
  return first;
}

struct Outcome {
  std::vector<int64_t> image;
  unsigned long long fault = 0;
};

// Micro-batches end at `cuts` (ascending, the last is all rows).
Outcome on_gpu(const Update& u, const std::vector<int64_t>& cuts, int sms) {
  const cuda::Context context(0, sms);
  DeviceBuffer<Bf16> dy(u.rows * u.lddy), x(u.rows * u.ldx);
  dy.upload(context, u.dy.data(), dy.size());
  x.upload(context, u.x.data(), x.size());
  const auto before = start_image(u);
  DeviceBuffer<int64_t> image(u.n * u.k);
  image.upload(context, before.data(), image.size());
  DeviceBuffer<unsigned long long> fault(1);
  cuda::fill(context, fault.data(), 0xFF, 8);
  DeviceBuffer<float> carry[2] = {DeviceBuffer<float>(2 * u.n * u.k), DeviceBuffer<float>(2 * u.n * u.k)};
  for (auto& c : carry) cuda::fill(context, c.data(), 0xFF, c.size_bytes());
  int64_t begin = 0;
  for (size_t cut = 0; cut < cuts.size(); ++cut) {
    std::vector<WeightGradientLeaf> leaves;
    int64_t leaf_begin = 0;
    for (size_t i = 0; i < u.leaf_rows.size(); ++i) {
      const int64_t leaf_end = leaf_begin + u.leaf_rows[i];
      const int64_t from = std::max(begin, leaf_begin), to = std::min(cuts[cut], leaf_end);
      // An empty leaf comes with the rows behind it.
      if (from < to || (u.leaf_rows[i] == 0 && begin <= leaf_begin &&
                        (leaf_begin < cuts[cut] || cut + 1 == cuts.size()))) {
        leaves.push_back({static_cast<int32_t>(from - begin), static_cast<int32_t>(to - begin),
                          static_cast<int32_t>(from - leaf_begin), from == leaf_begin, to == leaf_end,
                          static_cast<int32_t>(i)});
      }
      leaf_begin = leaf_end;
    }
    DeviceBuffer<WeightGradientLeaf> device_leaves(static_cast<int64_t>(leaves.size()));
    device_leaves.upload(context, leaves.data(), device_leaves.size());
    WeightGradientBf16 target;
    target.leaves = device_leaves.data();
    target.leaf_count = static_cast<int32_t>(leaves.size());
    target.carry_in = carry[cut % 2].data();
    target.carry_out = carry[(cut + 1) % 2].data();
    target.image = image.data();
    target.bound = u.bound;
    target.fault = {fault.data(), 1000};
    matmul_weight_gradient_bf16_cuda(context, dy.data() + begin * u.lddy, u.lddy, x.data() + begin * u.ldx,
                                     u.ldx, cuts[cut] - begin, u.n, u.k, target);
    context.synchronize();
    begin = cuts[cut];
  }
  Outcome outcome{std::vector<int64_t>(before.size()), 0};
  image.download(context, outcome.image.data(), image.size());
  fault.download(context, &outcome.fault, 1);
  return outcome;
}

void check(const Update& u, const std::vector<std::vector<int64_t>>& all_cuts) {
  std::vector<int64_t> want = start_image(u);
  const int64_t bad = reference(u, want);
  for (const auto& cuts : all_cuts) {
    for (const int sms : testing::cases<int>({3, 0, 1}, 1)) {
      SCOPED_TRACE("n " + std::to_string(u.n) + " k " + std::to_string(u.k) + " cuts " +
                   std::to_string(cuts.size()) + " sms " + std::to_string(sms));
      const Outcome got = on_gpu(u, cuts, sms);
      EXPECT_TRUE(same_bits(want, got.image));
      EXPECT_EQ(got.fault, bad < 0 ? cuda::kNoFault : 1000ULL + static_cast<unsigned long long>(bad));
    }
  }
}

TEST(MatmulBf16Cuda, WeightGradientEqualsTheDefinition) {
  LOCKSTEP_NEEDS_HOPPER();
  const Update u = make_update(136, 72, {16, 48, 112, 64, 80, 336, 16});
  check(u, {{u.rows}, {80, u.rows}, {16, 32, 128, 144, 400, u.rows}});
  const Update wide = make_update(70, 301, {96, 32, 160});
  check(wide, {{wide.rows}, {112, wide.rows}});
  const Update one = make_update(1, 1, {16});
  check(one, {{16}});
}

TEST(MatmulBf16Cuda, WeightGradientLongerThanAChunk) {
  LOCKSTEP_NEEDS_HOPPER();
  const int64_t chunk = numerics::kGradientChunk;
  const Update u = make_update(8, 9, {2 * chunk + 48, 32});
  check(u, {{u.rows},
            {chunk, u.rows},
            {chunk + 16, u.rows},
            {1040, chunk, 2 * chunk, 2 * chunk + 16, u.rows},
            {chunk - 16, 2 * chunk + 16, u.rows}});
}

TEST(MatmulBf16Cuda, WeightGradientOfEmptyLeaves) {
  LOCKSTEP_NEEDS_HOPPER();
  const Update u = make_update(264, 136, {0, 96, 0, 0, 64, 16, 0});
  check(u, {{u.rows}, {96, u.rows}});
}

// More units a block than the ring that tells of them has places, for tiles beside and below each other.
TEST(MatmulBf16Cuda, WeightGradientOfManyLeaves) {
  LOCKSTEP_NEEDS_HOPPER();
  std::vector<int64_t> leaf_rows;
  for (int64_t i = 0; i < 24; ++i) leaf_rows.push_back(16 * (1 + i * 5 % 7));
  int64_t cut = 0;
  for (int64_t i = 0; i < 11; ++i) cut += leaf_rows[static_cast<size_t>(i)];
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{392, 72}, {72, 264}, {184, 136}}) {
    const Update u = make_update(n, k, leaf_rows);
    check(u, {{u.rows}, {cut + 16, u.rows}});
  }
}

// Results of few multiples of 2^-44 and of many, of both signs and of one.
TEST(MatmulBf16Cuda, WeightGradientOfSmallAndLargeResults) {
  LOCKSTEP_NEEDS_HOPPER();
  std::vector<int64_t> leaf_rows;
  for (int64_t i = 0; i < 19; ++i) leaf_rows.push_back(16 * (1 + i * 5 % 7));
  for (const float scale : testing::cases<float>({0x1p-18F, 0x1p-15F, 0x1p-41F}, 2)) {
    for (const bool same_sign : {false, true}) {
      SCOPED_TRACE(std::to_string(scale) + " " + std::to_string(same_sign));
      Update u = make_update(200, 264, leaf_rows, scale);
      if (same_sign) {
        for (Bf16& x : u.dy) x &= 0x7FFF;
        for (Bf16& x : u.x) x |= 0x8000;
      }
      check(u, {{u.rows}, {leaf_rows[0] + 16, u.rows}});
    }
  }
}

TEST(MatmulBf16Cuda, WeightGradientOutOfRange) {
  LOCKSTEP_NEEDS_HOPPER();
  Update u = make_update(130, 40, {32, 64, 48, 32});
  u.dy[static_cast<size_t>(40 * u.lddy + 129)] = 0x7F00;  // leaf 1: too large
  u.dy[static_cast<size_t>(100 * u.lddy + 3)] = 0x7F80;   // leaf 2: infinite
  u.x[static_cast<size_t>(150 * u.ldx + 39)] = 0x7FC0;    // leaf 3: NaN
  check(u, {{u.rows}, {48, u.rows}});
}

TEST(MatmulBf16Cuda, WeightGradientOfRealShapeSampled) {
  LOCKSTEP_NEEDS_HOPPER();
  const Update u = make_update(1152, 896, {400, 1600, 1216, 880}, 0x1p-8F);
  const Outcome got = on_gpu(u, {2048, u.rows}, 0);
  EXPECT_EQ(got.fault, cuda::kNoFault);
  const auto before = start_image(u);
  TestRandom random(31);
  for (int i = 0; i < 300; ++i) {
    const int64_t row = random.below(u.n), column = random.below(u.k);
    int64_t want = before[static_cast<size_t>(row * u.k + column)];
    int64_t begin = 0;
    for (const int64_t rows : u.leaf_rows) {
      WeightGradientTarget target;
      target.image = &want;
      target.bound = u.bound;
      ASSERT_TRUE(matmul_bf16_weight_gradient_ref(&u.dy[static_cast<size_t>(begin * u.lddy + row)], u.lddy,
                                                  &u.x[static_cast<size_t>(begin * u.ldx + column)], u.ldx,
                                                  rows, 1, 1, target));
      begin += rows;
    }
    ASSERT_EQ(want, got.image[static_cast<size_t>(row * u.k + column)]) << row << " " << column;
  }
}

}  // namespace
}  // namespace lockstep::ops
