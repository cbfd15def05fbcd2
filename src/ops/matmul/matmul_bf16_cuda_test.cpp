// SPDX-License-Identifier: Apache-2.0
// The Hopper products against the scalar definition, byte for byte (every NaN counts as one: its payload is
// the machine's). Outputs start as 0xFF bytes, strides are longer than rows, and what lies between must stay.
#include "ops/matmul/matmul_bf16_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "numerics/fixed_point.h"
#include "numerics/math.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_bf16.h"
#include "ops/matmul/matmul_decode.h"
#include "same_bits.h"
#include "sanitized.h"

namespace lockstep::ops {
namespace {

using cuda::DeviceBuffer;
using testing::same_bits;
using testing::TestRandom;

template <typename T>
DeviceBuffer<T> on_device(const cuda::Context& context, const std::vector<T>& host) {
  DeviceBuffer<T> buffer(std::max<int64_t>(1, static_cast<int64_t>(host.size())));
  buffer.upload(context, host.data(), static_cast<int64_t>(host.size()));
  return buffer;
}
template <typename T>
std::vector<T> on_host(const cuda::Context& context, const DeviceBuffer<T>& buffer, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  buffer.download(context, host.data(), count);
  return host;
}

// One NaN for all, but not the poison.
std::vector<Bf16> one_nan(std::vector<Bf16> v) {
  for (Bf16& x : v) {
    if ((x & 0x7FFFU) > 0x7F80U && x != 0xFFFFU) x = 0x7FC0;
  }
  return v;
}
std::vector<uint32_t> one_nan(const std::vector<float>& v) {
  std::vector<uint32_t> bits;
  for (const float x : v) {
    const uint32_t b = numerics::float_bits(x);
    bits.push_back((b & 0x7FFFFFFFU) > 0x7F800000U && b != 0xFFFFFFFFU ? 0x7FC00000U : b);
  }
  return bits;
}

struct Matrix {
  int64_t rows, columns, ld;
  std::vector<Bf16> data;
};
// Values of several magnitudes; one in `rare` (0: none) is infinite, NaN, subnormal, huge or minus zero.
Matrix random_matrix(int64_t rows, int64_t columns, int64_t ld, uint64_t seed, int rare = 0) {
  TestRandom random(seed);
  Matrix m{rows, columns, ld, std::vector<Bf16>(static_cast<size_t>(rows * ld), 0x7FC1)};
  const Bf16 special[] = {0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x8003, 0x7F7F, 0x8000, 0x0080};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      Bf16& x = m.data[static_cast<size_t>(i * ld + j)];
      x = numerics::float_to_bfloat16(random.value() * (random.below(8) == 0 ? 0x1p-9F : 1.0F));
      if (rare > 0 && random.below(rare) == 0) x = special[random.below(8)];
    }
  }
  return m;
}

struct Rope {
  std::vector<float> cos, sin;
  std::vector<int32_t> positions;
};

struct ForwardCase {
  MatmulOutput output;
  int64_t m, n, k, chunk;
  bool bias = false;
  int64_t head_size = 0, rope_columns = 0;
  bool in_place = false;      // kResidual: out is residual
  bool keeps_gate_up = true;  // kSwiglu
  int rare = 0;
};

std::string name_of(const ForwardCase& c) {
  return "output " + std::to_string(static_cast<int>(c.output)) + " m " + std::to_string(c.m) + " n " +
         std::to_string(c.n) + " k " + std::to_string(c.k) + " chunk " + std::to_string(c.chunk) + " head " +
         std::to_string(c.head_size);
}

// The scalar result of a case and the same on the GPU with several numbers of multiprocessors.
class Forward {
 public:
  explicit Forward(const ForwardCase& c)
      : c_(c),
        x_(random_matrix(c.m, c.k, c.k + 16, 1, c.rare)),
        w_(random_matrix(c.n, c.k, c.k, 2, c.rare * 4)),
        residual_(random_matrix(c.m, c.n, (c.n + 15) / 8 * 8, 3, c.rare)),
        bias_(random_matrix(1, c.n, c.n, 4)),
        ld_out_((c.n + 23) / 8 * 8),
        ld_act_((c.n / 2 + 23) / 8 * 8) {
    TestRandom random(5);
    const int64_t positions = 40;
    rope_.cos = random.values(positions * std::max<int64_t>(c.head_size, 2) / 2);
    rope_.sin = random.values(positions * std::max<int64_t>(c.head_size, 2) / 2);
    for (int64_t i = 0; i < c.m; ++i)
      rope_.positions.push_back(static_cast<int32_t>(random.below(positions)));
    reference();
  }

  void check(int sms) {
    SCOPED_TRACE(name_of(c_) + " sms " + std::to_string(sms));
    const cuda::Context context(0, sms);
    const auto x = on_device(context, x_.data);
    const auto w = on_device(context, w_.data);
    const auto bias = on_device(context, bias_.data);
    const auto cos = on_device(context, rope_.cos);
    const auto sin = on_device(context, rope_.sin);
    const auto positions = on_device(context, rope_.positions);
    auto residual = on_device(context, residual_.data);
    auto out = on_device(context, std::vector<Bf16>(out_.size(), 0xFFFF));
    auto act = on_device(context, std::vector<Bf16>(act_.size(), 0xFFFF));
    auto y = on_device(context, std::vector<float>(y_.size(), numerics::float_from_bits(~0U)));
    MatmulForwardBf16 forward;
    forward.output = c_.output;
    forward.chunk = c_.chunk;
    if (c_.bias) forward.bias = bias.data();
    forward.out = c_.output == MatmulOutput::kFloat ? static_cast<void*>(y.data()) : out.data();
    forward.ld_out = ld_out_;
    if (c_.in_place) {
      forward.out = residual.data();
      forward.ld_out = residual_.ld;
    }
    forward.residual = residual.data();
    forward.ld_residual = residual_.ld;
    forward.rope = {cos.data(), sin.data(), positions.data(), c_.head_size, c_.rope_columns};
    forward.act = act.data();
    forward.ld_act = ld_act_;
    if (!c_.keeps_gate_up) forward.out = nullptr;
    for (int round = 0; round < 2; ++round) {  // twice: counters must be left as they were found
      if (round == 1 && c_.in_place) break;
      matmul_forward_bf16_cuda(context, x.data(), x_.ld, w.data(), c_.m, c_.n, c_.k, forward);
    }
    context.synchronize();
    if (c_.output == MatmulOutput::kFloat) {
      EXPECT_TRUE(same_bits(one_nan(y_), one_nan(on_host(context, y, y.size()))));
    } else if (c_.in_place) {
      const auto got = on_host(context, residual, residual.size());
      for (int64_t i = 0; i < c_.m; ++i) {
        const auto want =
            one_nan(std::vector<Bf16>(out_.begin() + i * ld_out_, out_.begin() + i * ld_out_ + c_.n));
        const auto row =
            one_nan(std::vector<Bf16>(got.begin() + i * residual_.ld, got.begin() + i * residual_.ld + c_.n));
        ASSERT_TRUE(same_bits(want, row)) << "row " << i;
      }
    } else {
      EXPECT_TRUE(
          same_bits(one_nan(out_), one_nan(on_host(context, out, static_cast<int64_t>(out_.size())))));
      EXPECT_TRUE(
          same_bits(one_nan(act_), one_nan(on_host(context, act, static_cast<int64_t>(act_.size())))));
    }
  }

 private:
  void reference() {
    y_.assign(static_cast<size_t>(c_.m * ld_out_), numerics::float_from_bits(~0U));
    out_.assign(y_.size(), 0xFFFF);
    act_.assign(static_cast<size_t>(c_.m * ld_act_), 0xFFFF);
    const int64_t ld = ld_out_;
    matmul_bf16_forward_ref(x_.data.data(), x_.ld, w_.data.data(), c_.m, c_.n, c_.k, y_.data(), ld, c_.chunk);
    if (c_.bias) matmul_bf16_bias_ref(bias_.data.data(), c_.m, c_.n, y_.data(), ld);
    switch (c_.output) {
      case MatmulOutput::kFloat:
        break;
      case MatmulOutput::kRope:
        matmul_bf16_rope_ref(
            {rope_.cos.data(), rope_.sin.data(), rope_.positions.data(), c_.head_size, c_.rope_columns}, c_.m,
            y_.data(), ld);
        [[fallthrough]];
      case MatmulOutput::kBf16:
        matmul_bf16_round_ref(y_.data(), ld, c_.m, c_.n, out_.data(), ld);
        break;
      case MatmulOutput::kResidual:
        matmul_bf16_residual_ref(y_.data(), ld, residual_.data.data(), residual_.ld, c_.m, c_.n, out_.data(),
                                 ld);
        break;
      case MatmulOutput::kSwiglu:
        matmul_bf16_swiglu_ref(y_.data(), ld, c_.m, c_.n / 2, c_.keeps_gate_up ? out_.data() : nullptr, ld,
                               act_.data(), ld_act_);
        break;
    }
  }

  ForwardCase c_;
  Matrix x_, w_, residual_, bias_;
  int64_t ld_out_, ld_act_;
  Rope rope_;
  std::vector<float> y_;
  std::vector<Bf16> out_, act_;
};

void check_all(const std::vector<ForwardCase>& cases) {
  for (const ForwardCase& c : cases) {
    Forward forward(c);
    for (const int sms : testing::cases<int>({3, 0, 1}, 2)) forward.check(sms);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MatmulBf16Cuda, ForwardEqualsTheDefinition) {
  LOCKSTEP_NEEDS_HOPPER();
  check_all({
      {MatmulOutput::kFloat, 257, 131, 72, 1024},
      {MatmulOutput::kFloat, 300, 397, 200, 64, true},
      {MatmulOutput::kBf16, 261, 264, 104, 1024, true},
      {MatmulOutput::kBf16, 258, 100, 328, 128},
      {MatmulOutput::kResidual, 300, 449, 64, 1024},
      {MatmulOutput::kResidual, 290, 224, 96, 1024, false, 0, 0, true},
      {MatmulOutput::kResidual, 290, 224, 264, 64, false, 0, 0, true},
      {MatmulOutput::kRope, 280, 384, 64, 1024, true, 64, 256},
      {MatmulOutput::kRope, 280, 320, 192, 64, true, 64, 128},
      {MatmulOutput::kRope, 280, 512, 64, 1024, false, 128, 384},
      {MatmulOutput::kRope, 280, 384, 192, 64, true, 128, 256},
      {MatmulOutput::kSwiglu, 270, 400, 72, 1024},
      {MatmulOutput::kSwiglu, 270, 272, 200, 64},
      {MatmulOutput::kSwiglu, 270, 400, 72, 1024, false, 0, 0, false, false},
  });
}

// Several tiles a block, so that places in shared memory are used again.
TEST(MatmulBf16Cuda, ForwardOfManyTilesEqualsTheDefinition) {
  LOCKSTEP_NEEDS_HOPPER();
  check_all({
      {MatmulOutput::kFloat, 900, 777, 64, 1024, true},
      {MatmulOutput::kBf16, 1000, 1000, 136, 64},
      {MatmulOutput::kResidual, 900, 1000, 72, 1024},
      {MatmulOutput::kResidual, 900, 904, 200, 64, false, 0, 0, true},
      {MatmulOutput::kRope, 900, 1152, 72, 1024, true, 64, 1024},
      {MatmulOutput::kSwiglu, 900, 1200, 64, 1024},
      {MatmulOutput::kSwiglu, 900, 1040, 136, 64, false, 0, 0, false, false},
  });
}

TEST(MatmulBf16Cuda, ForwardOfSpecialValues) {
  LOCKSTEP_NEEDS_HOPPER();
  check_all({
      {MatmulOutput::kFloat, 260, 96, 256, 128, false, 0, 0, false, true, 900},
      {MatmulOutput::kSwiglu, 260, 96, 128, 1024, false, 0, 0, false, true, 900},
      {MatmulOutput::kResidual, 260, 96, 128, 1024, false, 0, 0, false, true, 900},
      {MatmulOutput::kFloat, 20, 96, 256, 64, false, 0, 0, false, true, 900},
      {MatmulOutput::kSwiglu, 20, 96, 128, 1024, false, 0, 0, false, true, 900},
  });
}

// Every finite gate, times several ups: W picks single elements of x.
TEST(MatmulBf16Cuda, SwigluOfEveryGate) {
  LOCKSTEP_NEEDS_HOPPER();
  const int64_t m = 512, f = 128, k = 144;
  std::vector<Bf16> x(static_cast<size_t>(m * k)), w(static_cast<size_t>(2 * f * k));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < f; ++j) {
      const auto bits = static_cast<Bf16>(i * f + j);
      x[static_cast<size_t>(i * k + j)] = (bits & 0x7F80) == 0x7F80 ? 0 : bits;
    }
    x[static_cast<size_t>(i * k + f)] = static_cast<Bf16>(0x3F80 + i * 37 % 256);
  }
  for (int64_t j = 0; j < f; ++j) {
    w[static_cast<size_t>(j * k + j)] = 0x3F80;
    w[static_cast<size_t>((f + j) * k + f)] = static_cast<Bf16>(0x3F80 + j);
  }
  std::vector<float> sums(static_cast<size_t>(m * 2 * f));
  std::vector<Bf16> want(static_cast<size_t>(m * f));
  matmul_bf16_forward_ref(x.data(), k, w.data(), m, 2 * f, k, sums.data(), 2 * f);
  matmul_bf16_swiglu_ref(sums.data(), 2 * f, m, f, nullptr, 0, want.data(), f);
  const cuda::Context context(0);
  const auto device_x = on_device(context, x);
  const auto device_w = on_device(context, w);
  auto act = on_device(context, std::vector<Bf16>(want.size(), 0xFFFF));
  MatmulForwardBf16 forward;
  forward.output = MatmulOutput::kSwiglu;
  forward.act = act.data();
  forward.ld_act = f;
  matmul_forward_bf16_cuda(context, device_x.data(), k, device_w.data(), m, 2 * f, k, forward);
  EXPECT_TRUE(same_bits(one_nan(want), one_nan(on_host(context, act, act.size()))));
}

TEST(MatmulBf16Cuda, FewRowsEqualTheDefinition) {
  LOCKSTEP_NEEDS_HOPPER();
  std::vector<ForwardCase> cases;
  for (const int64_t m : {1, 7, 9, 17, 40, 70, 130, 256}) {
    cases.push_back({MatmulOutput::kFloat, m, 131, 328, 1024});
    cases.push_back({MatmulOutput::kBf16, m, 200, 328, 64, true});  // split over k
    if (m % 2 == 0) continue;
    cases.push_back({MatmulOutput::kResidual, m, 72, 200, 64, false, 0, 0, true});
    cases.push_back({MatmulOutput::kRope, m, 320, 128, 64, true, 64, 256});
    cases.push_back({MatmulOutput::kRope, m, 384, 128, 1024, true, 128, 256});
    cases.push_back({MatmulOutput::kRope, m, 512, 72, 1024, true, 128, 256});
    cases.push_back({MatmulOutput::kSwiglu, m, 400, 136, 64});
    cases.push_back({MatmulOutput::kSwiglu, m, 272, 72, 1024, false, 0, 0, false, false});
  }
  check_all(cases);
}

// Tiles of 64 and of 128 rows, copies that several blocks share, chunks that a block each has; also k of more
// blocks than are in flight at once.
TEST(MatmulBf16Cuda, FewRowsInTiles) {
  LOCKSTEP_NEEDS_HOPPER();
  std::vector<ForwardCase> cases;
  for (const int64_t m : {24, 64, 65, 100, 129, 256}) {
    cases.push_back({MatmulOutput::kSwiglu, m, 2 * 232, 200, 1024});
    cases.push_back({MatmulOutput::kSwiglu, m, 2 * 80, 72, 1024, false, 0, 0, false, false});
    cases.push_back({MatmulOutput::kResidual, m, 268, 328, 64, true});
    cases.push_back({MatmulOutput::kResidual, m, 200, 136, 1024, false, 0, 0, true});
    cases.push_back({MatmulOutput::kRope, m, 320, 136, 1024, true, 64, 192});
    cases.push_back({MatmulOutput::kRope, m, 512, 72, 1024, true, 128, 256});
  }
  for (const int64_t m : {60, 97, 256}) {
    cases.push_back({MatmulOutput::kSwiglu, m, 2 * 160, 1000, 1024, false, 0, 0, false, false});
    cases.push_back({MatmulOutput::kResidual, m, 120, 3000, 1024});
    cases.push_back({MatmulOutput::kResidual, m, 72, 1000, 1024});
    cases.push_back({MatmulOutput::kRope, m, 64, 1000, 1024, true, 64, 64});
  }
  check_all(cases);
}

// Rows of W enough for all multiprocessors: chunks are added in registers.
TEST(MatmulBf16Cuda, FewRowsManyColumns) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const int64_t m : {3, 12, 33}) {
    Forward forward({MatmulOutput::kFloat, m, 17001, 144, 64});
    forward.check(0);
    forward.check(5);
  }
}

// A few elements of shapes of real models, whole chunks of 1024 and the rest.
TEST(MatmulBf16Cuda, ForwardOfRealShapesSampled) {
  LOCKSTEP_NEEDS_HOPPER();
  const std::vector<std::array<int64_t, 3>> shapes = testing::cases<std::array<int64_t, 3>>(
      {{64, 896, 4864}, {256, 1152, 896}, {700, 9728, 896}, {1000, 896, 4864}}, 2);
  for (const auto& [m, n, k] : shapes) {
    SCOPED_TRACE(std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k));
    const Matrix x = random_matrix(m, k, k, 11), w = random_matrix(n, k, k, 12);
    const cuda::Context context(0);
    const auto device_x = on_device(context, x.data);
    const auto device_w = on_device(context, w.data);
    DeviceBuffer<float> y(m * n);
    MatmulForwardBf16 forward;
    forward.output = MatmulOutput::kFloat;
    forward.out = y.data();
    forward.ld_out = n;
    matmul_forward_bf16_cuda(context, device_x.data(), k, device_w.data(), m, n, k, forward);
    const auto got = on_host(context, y, m * n);
    TestRandom random(13);
    for (int i = 0; i < 2000; ++i) {
      const int64_t row = random.below(m), column = random.below(n);
      float want = 0;
      matmul_bf16_forward_ref(&x.data[static_cast<size_t>(row * k)], k,
                              &w.data[static_cast<size_t>(column * k)], 1, 1, k, &want, 1);
      ASSERT_EQ(numerics::float_bits(want), numerics::float_bits(got[static_cast<size_t>(row * n + column)]))
          << row << " " << column;
    }
  }
}

// Sums of a tile of the vocabulary, as docs/numerics.md has them; kTileEmpty and kTileInvalid of
// numerics/vocabulary_tile.cuh instead of the exponent.
struct Tile {
  int32_t max_exponent = INT32_MIN;
  uint64_t sum = 0;
};
Tile tile_of(const float* logits, int64_t count, float scale) {
  Tile tile;
  for (int64_t i = 0; i < count; ++i) {
    if (logits[i] == -__builtin_inff()) continue;
    const float s = logits[i] * scale;
    if (!(std::fabs(s) < numerics::kMaxScore)) return {INT32_MAX, 0};
    tile.max_exponent = std::max(tile.max_exponent, static_cast<int32_t>(std::rint(s)));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (logits[i] == -__builtin_inff()) continue;
    const float s = logits[i] * scale;
    const float n = std::rint(s);
    const int exponent = static_cast<int>(n) - tile.max_exponent + numerics::kWeightFractionBits;
    const double w = std::ldexp(static_cast<double>(numerics::exp2_fraction(s - n)), exponent);
    tile.sum += static_cast<uint64_t>(std::rint(w));
  }
  return tile;
}

struct VocabularyCase {
  int64_t m, n, k;
  float scale = 1.4426950F;
  int rare = 0;
};

// Logits and sums of tiles; sums are left out too.
void check_vocabulary(const VocabularyCase& c) {
  const Matrix x = random_matrix(c.m, c.k, c.k + 16, 51, c.rare);
  const Matrix w = random_matrix(c.n, c.k, c.k, 52, c.rare * 4);
  const int64_t ld = (c.n + 15) / 4 * 4;
  std::vector<float> y(static_cast<size_t>(c.m * ld), numerics::float_from_bits(~0U));
  matmul_bf16_forward_ref(x.data.data(), x.ld, w.data.data(), c.m, c.n, c.k, y.data(), ld);
  std::vector<int32_t> max_exponent;
  std::vector<uint64_t> sum;
  for (int64_t row = 0; row < c.m; ++row) {
    for (int64_t first = 0; first < c.n; first += 128) {
      const Tile tile =
          tile_of(&y[static_cast<size_t>(row * ld + first)], std::min<int64_t>(128, c.n - first), c.scale);
      max_exponent.push_back(tile.max_exponent);
      sum.push_back(tile.sum);
    }
  }
  for (const int sms : {0, 1, 7}) {
    for (const bool wanted : {true, false}) {
      SCOPED_TRACE("m " + std::to_string(c.m) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k) +
                   " sms " + std::to_string(sms) + (wanted ? " sums" : ""));
      const cuda::Context context(0, sms);
      const auto device_x = on_device(context, x.data);
      const auto device_w = on_device(context, w.data);
      auto out = on_device(context, std::vector<float>(y.size(), numerics::float_from_bits(~0U)));
      auto device_max = on_device(context, std::vector<int32_t>(max_exponent.size() + 1, -77));
      auto device_sum = on_device(context, std::vector<uint64_t>(sum.size() + 1, 77));
      MatmulForwardBf16 forward;
      forward.output = MatmulOutput::kFloat;
      forward.out = out.data();
      forward.ld_out = ld;
      forward.tile_scale = c.scale;
      if (wanted) {
        forward.tile_max_exponent = device_max.data();
        forward.tile_sum = device_sum.data();
      }
      matmul_vocabulary_bf16_cuda(context, device_x.data(), x.ld, device_w.data(), c.m, c.n, c.k, forward);
      context.synchronize();
      ASSERT_TRUE(same_bits(one_nan(y), one_nan(on_host(context, out, out.size()))));
      auto want_max = wanted ? max_exponent : std::vector<int32_t>(max_exponent.size(), -77);
      auto want_sum = wanted ? sum : std::vector<uint64_t>(sum.size(), 77);
      want_max.push_back(-77);
      want_sum.push_back(77);
      ASSERT_TRUE(same_bits(want_max, on_host(context, device_max, device_max.size())));
      ASSERT_TRUE(same_bits(want_sum, on_host(context, device_sum, device_sum.size())));
    }
  }
}

TEST(MatmulBf16Cuda, LogitsAndSumsOfTiles) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const int64_t m : {1, 2, 16, 33, 63, 64, 65, 127, 128}) {
    check_vocabulary({m, 388, 72});
    check_vocabulary({m, 1156, 136, 0.01F});
  }
  for (const int64_t m : {5, 64, 100, 128}) {
    check_vocabulary({m, 128, 896});
    check_vocabulary({m, 640, 1024, 30.0F});
    check_vocabulary({m, 5, 8});
    check_vocabulary({m, 255, 72});
    check_vocabulary({m, 900, 640, 3000.0F});  // scores out of range
    check_vocabulary({m, 516, 264, 1.0F, 900});
    check_vocabulary({m, 1284, 64, 1.0F, 9000});
  }
}

// By the way that matmul_forward_bf16_cuda() takes for many columns.
TEST(MatmulBf16Cuda, LogitsOfManyColumns) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const int64_t m : {3, 40, 70}) {
    const ForwardCase c = {MatmulOutput::kFloat, m, 17003, 72, 1024};
    MatmulForwardBf16 forward;
    forward.output = c.output;
    ASSERT_TRUE(matmul_makes_tiles(m, c.n, c.k, forward));
    Forward(c).check(0);
  }
}

TEST(MatmulBf16Cuda, InputGradientEqualsTheDefinition) {
  LOCKSTEP_NEEDS_HOPPER();
  const int64_t shapes[][4] = {
      {300, 100, 264, 0}, {5, 333, 232, 300}, {130, 72, 448, 0}, {900, 136, 1000, 0}, {3, 16384 + 40, 16, 0}};
  for (const auto& s : shapes) {
    const int64_t m = s[0], n = s[1], k = s[2];
    const int rare = static_cast<int>(s[3]);
    const Matrix dy = random_matrix(m, n, (n + 15) / 8 * 8, 21, rare), w = random_matrix(n, k, k, 22, rare);
    const int64_t ld = k + 8;
    std::vector<float> sums(static_cast<size_t>(m * ld));
    std::vector<Bf16> want(sums.size(), 0xFFFF);
    matmul_bf16_input_gradient_ref(dy.data.data(), dy.ld, w.data.data(), m, n, k, sums.data(), ld);
    matmul_bf16_round_ref(sums.data(), ld, m, k, want.data(), ld);
    for (const int sms : testing::cases<int>({3, 0, 1}, 2)) {
      SCOPED_TRACE(std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k) + " sms " +
                   std::to_string(sms));
      const cuda::Context context(0, sms);
      const auto device_dy = on_device(context, dy.data);
      const auto device_w = on_device(context, w.data);
      auto dx = on_device(context, std::vector<Bf16>(want.size(), 0xFFFF));
      matmul_input_gradient_bf16_cuda(context, device_dy.data(), dy.ld, device_w.data(), m, n, k, dx.data(),
                                      ld);
      EXPECT_TRUE(same_bits(one_nan(want), one_nan(on_host(context, dx, dx.size()))));
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
