// SPDX-License-Identifier: Apache-2.0
// Products on the GPU against their definition, byte for byte: every tile shape, odd sizes, several numbers
// of SMs.
#include "ops/matmul/matmul_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <ostream>
#include <vector>

#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul_fp32_shapes.h"
#include "same_bits.h"
#include "sanitized.h"

namespace lockstep::ops {
namespace {

using cuda::DeviceBuffer;
using fp32::Shape;
using numerics::gradient_bound;
using numerics::kForwardChunk;
using numerics::kGradientChunk;
using testing::same_bits;
using testing::TestRandom;

class MatmulCuda : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPU(); }
};

// All SMs, one, and a number that divides nothing.
void for_each_context(const std::function<void(const cuda::Context&)>& body) {
  for (const int sms : testing::cases<int>({7, 0, 1}, 1)) {
    SCOPED_TRACE("SMs " + std::to_string(sms));
    const cuda::Context context(0, sms);
    body(context);
  }
}

constexpr Shape kShapes[] = {Shape::kAuto,   Shape::k128x128, Shape::k128x112, Shape::k128x96,
                             Shape::k128x64, Shape::k64x64,   Shape::k32x64};

template <typename T>
DeviceBuffer<T> upload(const cuda::Context& context, const std::vector<T>& from) {
  DeviceBuffer<T> to(static_cast<int64_t>(from.size()) + 4);
  to.upload(context, from.data(), static_cast<int64_t>(from.size()));
  context.synchronize();
  return to;
}
template <typename T>
std::vector<T> download(const cuda::Context& context, const DeviceBuffer<T>& from, size_t count) {
  std::vector<T> to(count);
  from.download(context, to.data(), static_cast<int64_t>(count));
  return to;
}

// Bytes equal, but for the payload of a NaN.
::testing::AssertionResult same(std::vector<float> want, std::vector<float> got, int64_t ld) {
  for (size_t i = 0; i < want.size() && i < got.size(); ++i)
    if (std::isnan(want[i]) && std::isnan(got[i])) want[i] = got[i] = 0.0F;
  return same_bits(want.data(), got.data(), static_cast<int64_t>(want.size()), ld);
}

// Inputs of which about one in 16 is a special finite value.
std::vector<float> mixed(TestRandom& random, int64_t count) {
  std::vector<float> out = random.values(count);
  for (float& x : out) {
    switch (random.below(64)) {
      case 0:
        x = -0.0F;
        break;
      case 1:
        x = 0.0F;
        break;
      case 2:
        x = std::bit_cast<float>(static_cast<uint32_t>(random.below(0x00800000)));  // subnormal
        break;
      case 3:
        x *= 0x1p-100F;  // products below the smallest subnormal
        break;
      default:
        break;
    }
  }
  return out;
}

struct Sizes {
  int64_t m, n, k, pad;  // pad: stride beyond the row
};

TEST_F(MatmulCuda, ForwardEqualsReference) {
  const Sizes all[] = {{1, 1, 1, 5},       {2, 16, 3, 1},       {3, 33, 65, 0},      {5, 1, 7, 2},
                       {7, 100, 257, 3},   {1, 64, 64, 0},      {4, 96, 896, 4},     {8, 132, 100, 0},
                       {16, 68, 4864, 0},  {15, 36, 1028, 8},   {17, 68, 1024, 0},   {64, 200, 2052, 0},
                       {130, 260, 900, 4}, {211, 35, 21, 1},    {129, 132, 1023, 1}, {256, 384, 896, 0},
                       {9, 1100, 5, 0},    {100, 257, 3077, 3}, {300, 140, 3080, 0}, {33, 4, 12, 0},
                       {128, 128, 8, 0},   {128, 128, 16, 0},   {1, 1000, 5124, 0},  {65, 64, 4, 4}};
  for (const Sizes& s : all) {
    TestRandom random(static_cast<uint64_t>(s.m * 1000003 + s.n * 1009 + s.k));
    const int64_t ldx = s.k + s.pad, ldy = s.n + s.pad;
    const std::vector<float> x = mixed(random, s.m * ldx), w = mixed(random, s.n * s.k);
    const std::vector<float> bias = random.values(s.n), residual = random.values(s.m * ldy);
    std::vector<float> plain = testing::poisoned(s.m * ldy), full = residual;
    matmul_forward_ref(x.data(), ldx, w.data(), s.m, s.n, s.k, {}, plain.data(), ldy);
    matmul_forward_ref(x.data(), ldx, w.data(), s.m, s.n, s.k, {bias.data(), residual.data(), ldy},
                       full.data(), ldy);
    for_each_context([&](const cuda::Context& context) {
      const auto dx = upload(context, x), dw = upload(context, w), dbias = upload(context, bias);
      std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
      if (s.m <= fp32::kSkinnyRows && s.k % 4 == 0 && s.pad % 4 == 0) shapes.push_back(Shape::kSkinny);
      for (const Shape shape : shapes) {
        SCOPED_TRACE("m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k) +
                     " shape " + std::to_string(static_cast<int>(shape)));
        auto y = upload(context, testing::poisoned(s.m * ldy));
        fp32::forward(context, shape, dx.data(), ldx, dw.data(), s.m, s.n, s.k, {}, y.data(), ldy);
        EXPECT_TRUE(same(plain, download(context, y, plain.size()), ldy));  // gaps stay poisoned
        y = upload(context, residual);                                      // in place
        fp32::forward(context, shape, dx.data(), ldx, dw.data(), s.m, s.n, s.k, {dbias.data(), y.data(), ldy},
                      y.data(), ldy);
        EXPECT_TRUE(same(full, download(context, y, full.size()), ldy));
      }
    });
  }
}

TEST_F(MatmulCuda, ForwardOfAModelsSizes) {
  const Sizes all[] = {{1, 1152, 896, 0},   {32, 896, 4864, 0},  {256, 896, 896, 0},
                       {256, 9728, 896, 0}, {300, 896, 4864, 0}, {2048, 1152, 896, 0}};
  const cuda::Context context(0);
  for (const Sizes& s : all) {
    SCOPED_TRACE("m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k));
    TestRandom random(static_cast<uint64_t>(s.m + s.n));
    const std::vector<float> x = random.values(s.m * s.k), w = random.values(s.n * s.k);
    const auto dx = upload(context, x), dw = upload(context, w);
    auto y = upload(context, testing::poisoned(s.m * s.n));
    matmul_forward_fp32_cuda(context, dx.data(), s.k, dw.data(), s.m, s.n, s.k, {}, y.data(), s.n);
    const std::vector<float> got = download(context, y, static_cast<size_t>(s.m * s.n));
    for (int64_t row = 0; row < s.m; row += std::max<int64_t>(1, s.m / 7)) {
      std::vector<float> want = testing::poisoned(s.n);
      matmul_forward_ref(x.data() + row * s.k, s.k, w.data(), 1, s.n, s.k, {}, want.data(), s.n);
      EXPECT_TRUE(same_bits(want.data(), got.data() + row * s.n, s.n)) << "row " << row;
    }
  }
}

// Chains that end in -0 by underflow stay -0: no step beyond the last is added, at any length.
TEST_F(MatmulCuda, NoStepIsAddedToAChain) {
  const cuda::Context context(0);
  for (int64_t k = 1; k <= 40; ++k) {
    const std::vector<float> x(static_cast<size_t>(16 * k), -0x1p-100F),
        w(static_cast<size_t>(16 * k), 0x1p-100F);
    std::vector<float> want = testing::poisoned(256);
    matmul_forward_ref(x.data(), k, w.data(), 16, 16, k, {}, want.data(), 16);
    ASSERT_EQ(testing::bits_of(want[0]), 0x80000000U);
    const auto dx = upload(context, x), dw = upload(context, w);
    for (const Shape shape : kShapes) {
      auto y = upload(context, testing::poisoned(256));
      fp32::forward(context, shape, dx.data(), k, dw.data(), 16, 16, k, {}, y.data(), 16);
      EXPECT_TRUE(same(want, download(context, y, 256), 16)) << k;
      if (k < 16) continue;
      y = upload(context, testing::poisoned(256));
      // dX over 16 .. 40 steps: dy [16, k], W [k, 16].
      fp32::input_gradient(context, shape, dx.data(), k, dw.data(), 16, k, 16, y.data(), 16);
      EXPECT_TRUE(same(want, download(context, y, 256), 16)) << k;
    }
  }
}

TEST_F(MatmulCuda, ARowDoesNotSeeItsNeighbours) {
  const Sizes s = {40, 52, 1032, 0};
  TestRandom random(7);
  std::vector<float> x = mixed(random, s.m * s.k);
  const std::vector<float> w = mixed(random, s.n * s.k);
  x[5 * 1032 + 3] = std::numeric_limits<float>::infinity();
  x[5 * 1032 + 9] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> want = testing::poisoned(s.m * s.n);
  matmul_forward_ref(x.data(), s.k, w.data(), s.m, s.n, s.k, {}, want.data(), s.n);
  for_each_context([&](const cuda::Context& context) {
    const auto dx = upload(context, x), dw = upload(context, w);
    for (const int64_t rows : {40, 16, 6}) {
      auto y = upload(context, testing::poisoned(s.m * s.n));
      matmul_forward_fp32_cuda(context, dx.data(), s.k, dw.data(), rows, s.n, s.k, {}, y.data(), s.n);
      std::vector<float> head(want.begin(), want.begin() + rows * s.n);
      EXPECT_TRUE(same(head, download(context, y, head.size()), s.n));
    }
  });
}

TEST_F(MatmulCuda, InputGradientEqualsReference) {
  constexpr int64_t kC = kGradientChunk;
  const Sizes all[] = {{1, 1, 1, 1},           {1, 300, 17, 0},   {2, 9, 33, 3},      {4, 500, 72, 4},
                       {5, 257, 16, 0},        {17, 70, 48, 2},   {65, 300, 132, 0},  {200, 40, 65, 1},
                       {256, 896, 260, 0},     {7, kC, 20, 0},    {3, kC + 1, 19, 0}, {130, kC + 4, 8, 0},
                       {2, 2 * kC + 77, 5, 0}, {129, 132, 136, 4}};
  for (const Sizes& s : all) {
    TestRandom random(static_cast<uint64_t>(s.m * 1000003 + s.n * 1009 + s.k + 1));
    const int64_t lddy = s.n + s.pad, lddx = s.k + s.pad;
    const std::vector<float> dy = mixed(random, s.m * lddy), w = mixed(random, s.n * s.k);
    std::vector<float> want = testing::poisoned(s.m * lddx);
    matmul_input_gradient_ref(dy.data(), lddy, w.data(), s.m, s.n, s.k, want.data(), lddx);
    for_each_context([&](const cuda::Context& context) {
      const auto ddy = upload(context, dy), dw = upload(context, w);
      for (const Shape shape : kShapes) {
        SCOPED_TRACE("m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k) +
                     " shape " + std::to_string(static_cast<int>(shape)));
        auto dx = upload(context, testing::poisoned(s.m * lddx));
        fp32::input_gradient(context, shape, ddy.data(), lddy, dw.data(), s.m, s.n, s.k, dx.data(), lddx);
        EXPECT_TRUE(same(want, download(context, dx, want.size()), lddx));
      }
    });
  }
}

// An update: leaves of given rows (0: empty), cut into micro-batches at `cuts` (rows, ascending).
struct Update {
  std::vector<int64_t> leaves, cuts;
  int64_t n, k;
  friend void PrintTo(const Update& u, std::ostream* out) {
    *out << "n " << u.n << " k " << u.k << " leaves " << u.leaves.size() << " calls " << u.cuts.size();
  }
};

std::vector<std::vector<WeightGradientRows>> plan(const Update& u) {
  std::vector<std::vector<WeightGradientRows>> calls(u.cuts.size());
  int64_t leaf_begin = 0;
  for (const int64_t rows : u.leaves) {
    const int64_t leaf_end = leaf_begin + rows;
    int64_t call_begin = 0;
    for (size_t c = 0; c < u.cuts.size(); ++c) {
      const int64_t begin = std::max(call_begin, leaf_begin), end = std::min(u.cuts[c], leaf_end);
      const bool here = begin < end || (rows == 0 && leaf_begin >= call_begin && leaf_begin < u.cuts[c]);
      if (here)
        calls[c].push_back({begin - call_begin, std::max(begin, end) - call_begin, begin - leaf_begin,
                            begin == leaf_begin ? 1 : 0, end == leaf_end || rows == 0 ? 1 : 0});
      call_begin = u.cuts[c];
    }
    leaf_begin = leaf_end;
  }
  return calls;
}

constexpr int64_t kC = kGradientChunk;
const Update kUpdates[] = {{{1}, {1}, 1, 1},
                           {{40, 7, 0, 100, 13}, {160}, 33, 65},
                           {{40, 7, 0, 100, 13}, {20, 90, 160}, 132, 68},
                           {{300}, {1, 64, 65, 300}, 260, 132},
                           {{5, 290, 30}, {2, 100, 200, 299, 325}, 68, 264},
                           {{kC + 5, 9}, {kC + 14}, 12, 20},
                           {{3, 2 * kC + 9, 50}, {100, kC + 2, kC + 3, 2 * kC + 30, 2 * kC + 62}, 7, 18},
                           {{2 * kC + 9}, {kC, 2 * kC, 2 * kC + 9}, 64, 4},
                           {{200, 200, 200, 200}, {450, 800}, 896, 128},
                           {{31, 33}, {64}, 4100, 1028}};

class MatmulCudaUpdate : public MatmulCuda, public ::testing::WithParamInterface<Update> {};
INSTANTIATE_TEST_SUITE_P(Updates, MatmulCudaUpdate, ::testing::ValuesIn(kUpdates));

TEST_P(MatmulCudaUpdate, WeightGradientEqualsReference) {
  const Update& u = GetParam();
  const int64_t rows = u.cuts.back(), count = u.n * u.k;
  const int64_t lddy = u.n + (u.n % 4 == 0 ? 4 : 1), ldx = u.k + (u.k % 4 == 0 ? 8 : 3);
  TestRandom random(static_cast<uint64_t>(rows + u.n));
  std::vector<float> dy = mixed(random, rows * lddy), x = mixed(random, rows * ldx);
  std::vector<int64_t> start(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) start[static_cast<size_t>(i)] = i * 1000003 - 77;
  const auto calls = plan(u);
  std::vector<int64_t> want = start;
  std::vector<float> carry = testing::poisoned(count), chunk_sum = testing::poisoned(count);
  int64_t call_begin = 0;
  for (size_t c = 0; c < calls.size(); ++c) {
    for (const WeightGradientRows& leaf : calls[c]) {
      const int64_t at = call_begin + leaf.begin;
      EXPECT_TRUE(matmul_weight_gradient_ref(
          dy.data() + at * lddy, lddy, x.data() + at * ldx, ldx, leaf.end - leaf.begin, u.n, u.k,
          {leaf.begins != 0, leaf.ends != 0, leaf.rows_before, carry.data(), chunk_sum.data(), want.data(),
           gradient_bound(1)}));
    }
    call_begin = u.cuts[c];
  }
  for_each_context([&](const cuda::Context& context) {
    if (count > 1000000 && context.sms() == 1) return;
    const auto ddy = upload(context, dy), dx = upload(context, x);
    for (const Shape shape : kShapes) {
      if (testing::sanitized() && rows * count > 50000000 && shape != Shape::kAuto) continue;
      SCOPED_TRACE("shape " + std::to_string(static_cast<int>(shape)));
      auto image = upload(context, start);
      auto dcarry = upload(context, testing::poisoned(count)),
           dsum = upload(context, testing::poisoned(count));
      auto fault = upload(context, std::vector<unsigned long long>{cuda::kNoFault});
      int64_t at = 0;
      for (size_t c = 0; c < calls.size(); ++c) {
        const auto leaves = upload(context, calls[c]);
        fp32::weight_gradient(
            context, shape, ddy.data() + at * lddy, lddy, dx.data() + at * ldx, ldx, u.n, u.k, leaves.data(),
            static_cast<int64_t>(calls[c].size()),
            {dcarry.data(), dsum.data(), image.data(), gradient_bound(1), {fault.data(), 0}, 8});
        context.synchronize();
        at = u.cuts[c];
      }
      EXPECT_TRUE(same_bits(want, download(context, image, want.size())));
      EXPECT_EQ(download(context, fault, 1)[0], cuda::kNoFault);
    }
  });
}

TEST_F(MatmulCuda, WeightGradientOutOfRangeIsReportedAndLeftOut) {
  const float bound = gradient_bound(32);
  for (const float bad : {bound, -bound, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), std::nextafter(bound, 0.0F)}) {
    const int64_t n = 28, k = 40, rows = 4;
    std::vector<float> dy(static_cast<size_t>(rows * n), 0.5F), x(static_cast<size_t>(rows * k), 1.0F);
    dy[2 * n + 24] = bad;  // row 2 is leaf 7's first
    dy[3 * n + 24] = 0.0F;
    const std::vector<WeightGradientRows> leaves = {{0, 2, 0, 1, 1, 6}, {2, 4, 0, 1, 1, 7}};
    std::vector<int64_t> want(static_cast<size_t>(n * k), 5);
    bool good = true;
    for (const WeightGradientRows& leaf : leaves) {
      WeightGradientTarget target;
      target.image = want.data();
      target.bound = bound;
      good = matmul_weight_gradient_ref(dy.data() + leaf.begin * n, n, x.data() + leaf.begin * k, k,
                                        leaf.end - leaf.begin, n, k, target) &&
             good;
    }
    for_each_context([&](const cuda::Context& context) {
      const auto ddy = upload(context, dy), dx = upload(context, x);
      const auto dleaves = upload(context, leaves);
      auto image = upload(context, std::vector<int64_t>(static_cast<size_t>(n * k), 5));
      auto fault = upload(context, std::vector<unsigned long long>{cuda::kNoFault});
      matmul_weight_gradient_fp32_cuda(context, ddy.data(), n, dx.data(), k, n, k, dleaves.data(), 2,
                                       {nullptr, nullptr, image.data(), bound, {fault.data(), 1000}, 8});
      EXPECT_TRUE(same_bits(want, download(context, image, want.size())));
      EXPECT_EQ(download(context, fault, 1)[0], good ? cuda::kNoFault : 1000 + 7 * 256) << bad;
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
