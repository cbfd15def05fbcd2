// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels of attention in profile bf16 against attention_bf16_ref.cpp, byte for byte.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "device/cuda/context.h"
#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "same_bits.h"
#include "sanitized.h"

namespace lockstep::ops {
namespace {

using cuda::Context;
using cuda::DeviceBuffer;
using lockstep::testing::cases;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using numerics::Bf16;

constexpr Bf16 kPoison = 0xFFFF;

std::vector<Bf16> random_bf16(TestRandom& random, int64_t n, float scale) {
  std::vector<Bf16> out(n);
  for (Bf16& x : out) x = numerics::float_to_bfloat16(random.value() * scale);
  return out;
}

template <typename T>
DeviceBuffer<T> on_device(const Context& context, const std::vector<T>& from) {
  DeviceBuffer<T> to(static_cast<int64_t>(from.size()));
  to.upload(context, from.data(), to.size());
  return to;
}
template <typename T>
DeviceBuffer<T> poisoned_on_device(const Context& context, int64_t n) {
  DeviceBuffer<T> to(n);
  cuda::fill(context, to.data(), 0xFF, to.size_bytes());
  return to;
}
template <typename T>
std::vector<T> from_device(const Context& context, const DeviceBuffer<T>& from) {
  std::vector<T> to(from.size());
  from.download(context, to.data(), from.size());
  return to;
}

// Samples of a micro-batch as the trainer lays them out, and what the reference says of them.
struct Batch {
  AttentionShape shape;
  std::vector<int32_t> begin, rows;
  int64_t total = 0, ld = 0;
  std::vector<Bf16> qkv, out;
  std::vector<float> max_exponent, inverse_sum;
  bool ok = true;

  Batch(const AttentionShape& s, const std::vector<int>& lengths, uint64_t seed, float scale,
        int64_t extra_ld = 0)
      : shape(s) {
    for (int length : lengths) {
      begin.push_back(static_cast<int32_t>(total));
      rows.push_back(length);
      total += (length + 15) / 16 * 16 + 16;  // 16 rows between samples that nobody may touch
    }
    ld = (shape.heads + 2 * shape.kv_heads) * shape.head_size + extra_ld;
    qkv.assign(total * ld, 0);
    TestRandom random(seed);
    for (size_t i = 0; i < begin.size(); ++i) {
      const std::vector<Bf16> values = random_bf16(random, rows[i] * ld, scale);
      std::copy(values.begin(), values.end(), qkv.begin() + begin[i] * ld);
    }
  }
  int64_t width() const { return shape.heads * shape.head_size; }
  int64_t max_rows() const { return *std::max_element(rows.begin(), rows.end()); }
  std::vector<AttentionSample> samples() const {
    std::vector<AttentionSample> list;
    for (size_t i = 0; i < begin.size(); ++i) list.push_back({begin[i], begin[i] + rows[i]});
    return list;
  }

  // Rows of samples: the reference; their padding to 16: zeros; others: all ones.
  void forward_ref(int64_t segment = numerics::kAttentionSegment) {
    out.assign(total * width(), kPoison);
    max_exponent.assign(total * shape.heads, numerics::float_from_bits(~0U));
    inverse_sum = max_exponent;
    for (size_t i = 0; i < begin.size(); ++i) {
      for (int64_t row = begin[i] + rows[i]; row < begin[i] + (rows[i] + 15) / 16 * 16; ++row) {
        std::fill_n(out.begin() + row * width(), width(), Bf16{0});
        std::fill_n(max_exponent.begin() + row * shape.heads, shape.heads, 0.0F);
        std::fill_n(inverse_sum.begin() + row * shape.heads, shape.heads, 0.0F);
      }
      Blocks blocks(*this, i);
      const AttentionRunBf16 run = blocks.run(begin[i], 0, rows[i]);
      ok = attention_forward_bf16_ref(shape, qkv.data(), ld, &run, 1, out.data(), width(),
                                      max_exponent.data(), inverse_sum.data(), segment) &&
           ok;
    }
  }

  struct Blocks {
    std::vector<std::vector<Bf16>> memory;
    std::vector<Bf16*> k, v;
    Blocks(const Batch& b, size_t sample) {
      const int64_t blocks = (b.rows[sample] + 63) / 64;
      for (int64_t i = 0; i < 2 * blocks; ++i) memory.emplace_back(kv_block_elements_bf16(b.shape), kPoison);
      for (int64_t i = 0; i < blocks; ++i) {
        k.push_back(memory[2 * i].data());
        v.push_back(memory[2 * i + 1].data());
      }
      const Bf16* from = b.qkv.data() + b.begin[sample] * b.ld + b.width();
      write_kv_blocks_bf16(b.shape, from, from + b.shape.kv_heads * b.shape.head_size, b.ld, b.rows[sample],
                           0, k.data(), v.data());
    }
    AttentionRunBf16 run(int64_t first_row, int64_t first_position, int64_t rows) const {
      return {first_row, rows, first_position, k.data(), v.data()};
    }
  };
};

struct DeviceSamples {
  DeviceBuffer<int32_t> begin, rows;
  AttentionSamplesCuda samples;
  DeviceSamples(const Context& context, const Batch& batch)
      : begin(on_device(context, batch.begin)), rows(on_device(context, batch.rows)) {
    samples = {begin.data(), rows.data(), begin.size(), batch.max_rows(), batch.total};
  }
};

struct Faults {
  DeviceBuffer<unsigned long long> at;
  const Context& context;
  explicit Faults(const Context& c) : at(1), context(c) { cuda::fill(context, at.data(), 0xFF, 8); }
  cuda::Fault fault(unsigned long long key = 0) { return {at.data(), key}; }
  unsigned long long value() { return from_device(context, at)[0]; }
};

void expect_forward(const Context& context, const Batch& batch,
                    int64_t segment = numerics::kAttentionSegment) {
  const DeviceBuffer<Bf16> qkv = on_device(context, batch.qkv);
  DeviceBuffer<Bf16> out = poisoned_on_device<Bf16>(context, batch.total * batch.width());
  DeviceBuffer<float> m = poisoned_on_device<float>(context, batch.total * batch.shape.heads);
  DeviceBuffer<float> r = poisoned_on_device<float>(context, batch.total * batch.shape.heads);
  const DeviceSamples samples(context, batch);
  Faults faults(context);
  attention_forward_bf16_cuda(context, batch.shape, qkv.data(), batch.ld, samples.samples, out.data(),
                              m.data(), r.data(), faults.fault(), segment);
  EXPECT_EQ(batch.ok, faults.value() == cuda::kNoFault);
  EXPECT_TRUE(
      same_bits(batch.max_exponent.data(), from_device(context, m).data(), m.size(), batch.shape.heads));
  EXPECT_TRUE(
      same_bits(batch.inverse_sum.data(), from_device(context, r).data(), r.size(), batch.shape.heads));
  EXPECT_TRUE(same_bits(batch.out.data(), from_device(context, out).data(), out.size(), batch.width()));
}

std::string name_of(const AttentionShape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " +
         std::to_string(s.head_size);
}

const AttentionShape kSmallShapes[] = {{2, 2, 64},  {4, 2, 64},  {7, 1, 64},  {3, 1, 16},
                                       {2, 1, 80},  {4, 2, 128}, {7, 1, 128}, {2, 1, 256},
                                       {20, 2, 32}, {2, 1, 250}, {3, 3, 10},  {2, 1, 192}};

TEST(AttentionBf16Cuda, ForwardOfEveryShape) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  for (const AttentionShape& shape : kSmallShapes) {
    SCOPED_TRACE(name_of(shape));
    Batch batch(shape, {1, 15, 16, 17, 63, 64, 65, 127, 130}, 7, 2.0F, shape.head_size == 128 ? 16 : 0);
    batch.forward_ref();
    expect_forward(context, batch);
  }
}

TEST(AttentionBf16Cuda, ForwardOfTheRecipe) {
  LOCKSTEP_NEEDS_HOPPER();
  for (int sms : {0, 5}) {
    Context context(0, sms);
    Batch batch({14, 2, 64}, {400, 0, 33}, 8, 1.5F);
    batch.forward_ref();
    expect_forward(context, batch);
  }
}

TEST(AttentionBf16Cuda, ForwardOverSegments) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  Batch batch({2, 1, 64}, {577, 1100}, 9, 2.0F);
  batch.forward_ref();
  expect_forward(context, batch);
  Batch wide({1, 1, 128}, {600}, 10, 2.0F);
  wide.forward_ref();
  expect_forward(context, wide);
  Batch small({3, 1, 16}, {1153}, 11, 3.0F);
  for (int64_t segment : cases<int64_t>({64, 256, 512, 1024, 0}, 2)) {
    SCOPED_TRACE(segment);
    small.forward_ref(segment);
    expect_forward(context, small, segment);
  }
  Batch widest({1, 1, 256}, {300}, 12, 1.0F);
  widest.forward_ref(128);
  expect_forward(context, widest, 128);
}

// Scores of hundreds: maxima jump by more than 126, most weights are below the floor.
TEST(AttentionBf16Cuda, ForwardWithLargeScores) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  for (float scale : {6.0F, 25.0F, 150.0F}) {
    SCOPED_TRACE(scale);
    Batch batch({3, 1, 64}, {200, 65, 130}, 13, scale);
    // Later keys are larger: the maximum rises from block to block.
    for (int64_t row = 0; row < batch.total; ++row) {
      for (int64_t i = 0; i < batch.ld; ++i) {
        const float x = numerics::bfloat16_to_float(batch.qkv[row * batch.ld + i]);
        batch.qkv[row * batch.ld + i] =
            numerics::float_to_bfloat16(x * (0.1F + static_cast<float>(row % 200) * 0.01F));
      }
    }
    batch.forward_ref(128);
    EXPECT_TRUE(batch.ok);
    expect_forward(context, batch, 128);
  }
}

// A score just below the bound, whose rounded exponent is the bound itself.
TEST(AttentionBf16Cuda, ForwardWithTheLargestScore) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  for (const float sign : {1.0F, -1.0F}) {
    SCOPED_TRACE(sign);
    Batch batch({1, 1, 64}, {1}, 15, 1.0F);
    std::fill_n(batch.qkv.begin(), 128, Bf16{0});
    const float q[] = {65536, 256, 1}, k[] = {177, 114, 23};
    for (int i = 0; i < 3; ++i) {
      batch.qkv[i] = numerics::float_to_bfloat16(q[i]);
      batch.qkv[64 + i] = numerics::float_to_bfloat16(sign * k[i]);
    }
    batch.forward_ref();
    EXPECT_TRUE(batch.ok);
    EXPECT_EQ(batch.max_exponent[0], sign * numerics::kMaxScore);
    expect_forward(context, batch);
  }
}

TEST(AttentionBf16Cuda, ForwardReportsTheFirstBadRow) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  const float inf = numerics::float_from_bits(0x7F800000U);
  for (const float value : {3.0e38F, -3.0e38F, 1.0e6F, -1.0e6F, inf, -inf, inf - inf}) {
    SCOPED_TRACE(value);
    Batch batch({2, 1, 64}, {70, 150}, 14, 1.0F);
    const int64_t key = batch.begin[1] + 66;  // seen from row 66 of sample 1 on
    for (int64_t i = 0; i < 64; ++i) batch.qkv[key * batch.ld + 128 + i] = 0;
    batch.qkv[key * batch.ld + 128 + 5] = numerics::float_to_bfloat16(value);
    for (int64_t row = key + 4; row < batch.begin[1] + 150; ++row)
      batch.qkv[row * batch.ld + 5] = batch.qkv[row * batch.ld + 69] = numerics::float_to_bfloat16(100.0F);
    for (int64_t row = batch.begin[1]; row < key + 4; ++row)
      batch.qkv[row * batch.ld + 5] = batch.qkv[row * batch.ld + 69] = 0;
    const DeviceBuffer<Bf16> qkv = on_device(context, batch.qkv);
    DeviceBuffer<Bf16> out(batch.total * batch.width());
    DeviceBuffer<float> m(batch.total * 2), r(batch.total * 2);
    const DeviceSamples samples(context, batch);
    Faults faults(context);
    attention_forward_bf16_cuda(context, batch.shape, qkv.data(), batch.ld, samples.samples, out.data(),
                                m.data(), r.data(), faults.fault(1000000));
    // A zero of q times an infinity is NaN already.
    const bool special = !(std::abs(value) < inf);
    EXPECT_EQ(faults.value(), 1000000ULL + static_cast<unsigned long long>(special ? key : key + 4));
  }
}

// ---- rollout ----

// A cache of two layers whose pages are shuffled; layer 1 is used, the rest is poisoned.
struct Pages {
  DeviceBuffer<Bf16> memory;
  DeviceBuffer<int32_t> table;
  KvPagesCuda pages;
  Pages(const Context& context, const Batch& batch, uint64_t seed) {
    const int64_t block = kv_block_elements_bf16(batch.shape);
    const int64_t per_sequence = (batch.max_rows() + 63) / 64;
    const auto sequences = static_cast<int64_t>(batch.begin.size());
    std::vector<int32_t> order(sequences * per_sequence);
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    TestRandom random(seed);
    for (size_t i = order.size() - 1; i > 0; --i)
      std::swap(order[i], order[random.below(static_cast<int64_t>(i) + 1)]);
    memory = poisoned_on_device<Bf16>(context, static_cast<int64_t>(order.size()) * 4 * block);
    table = on_device(context, order);
    pages = {memory.data(), 4 * block, 2 * block, 3 * block, table.data(), per_sequence};
  }
};

// Every position of every sample: cut into runs of the lengths given, keys written just before; then decode.
void expect_rollout(const Context& context, const Batch& batch, const std::vector<int>& pieces,
                    int64_t segment = numerics::kAttentionSegment) {
  const DeviceBuffer<Bf16> qkv = on_device(context, batch.qkv);
  const Pages cache(context, batch, 5);
  DeviceBuffer<Bf16> out = poisoned_on_device<Bf16>(context, batch.total * batch.width());
  Faults faults(context);
  std::vector<int32_t> done(batch.begin.size(), 0);
  const Bf16* k = qkv.data() + batch.width();
  const Bf16* v = k + batch.shape.kv_heads * batch.shape.head_size;
  for (size_t turn = 0;; ++turn) {
    std::vector<int32_t> first_row, rows, position, sequence;
    std::vector<int32_t> write_sequence(batch.total, -1), write_position(batch.total, 0);
    int64_t most = 0;
    for (size_t i = 0; i < done.size(); ++i) {
      const int32_t n = std::min(pieces[(turn + i) % pieces.size()], batch.rows[i] - done[i]);
      first_row.push_back(batch.begin[i] + done[i]);
      rows.push_back(n);
      position.push_back(done[i]);
      sequence.push_back(static_cast<int32_t>(i));
      for (int32_t j = 0; j < n; ++j) {
        write_sequence[batch.begin[i] + done[i] + j] = static_cast<int32_t>(i);
        write_position[batch.begin[i] + done[i] + j] = done[i] + j;
      }
      done[i] += n;
      most = std::max<int64_t>(most, n);
    }
    if (most == 0) break;
    const DeviceBuffer<int32_t> a = on_device(context, first_row), b = on_device(context, rows),
                                c = on_device(context, position), d = on_device(context, sequence),
                                e = on_device(context, write_sequence),
                                f = on_device(context, write_position);
    write_kv_pages_bf16_cuda(context, batch.shape, k, v, batch.ld, batch.total, e.data(), f.data(),
                             cache.pages);
    attention_prefill_bf16_cuda(
        context, batch.shape, qkv.data(), batch.ld,
        {a.data(), b.data(), c.data(), d.data(), a.size(), most, *std::max_element(done.begin(), done.end())},
        cache.pages, out.data(), batch.width(), faults.fault(), segment);
    context.synchronize();
  }
  std::vector<Bf16> want = batch.out;  // prefill pads nothing
  for (size_t i = 0; i < done.size(); ++i) {
    for (int64_t row = batch.begin[i] + batch.rows[i]; row < batch.begin[i] + (batch.rows[i] + 15) / 16 * 16;
         ++row)
      std::fill_n(want.begin() + row * batch.width(), batch.width(), kPoison);
  }
  EXPECT_TRUE(same_bits(want.data(), from_device(context, out).data(), out.size(), batch.width()))
      << "prefill";

  cuda::fill(context, out.data(), 0xFF, out.size_bytes());
  std::vector<int32_t> sequence(batch.total, 0), keys(batch.total, 0);
  for (size_t i = 0; i < done.size(); ++i) {
    for (int32_t j = 0; j < batch.rows[i]; ++j) {
      sequence[batch.begin[i] + j] = static_cast<int32_t>(i);
      keys[batch.begin[i] + j] = j + 1;
    }
  }
  const DeviceBuffer<int32_t> s = on_device(context, sequence), n = on_device(context, keys);
  attention_decode_bf16_cuda(context, batch.shape, qkv.data(), batch.ld, batch.total, s.data(), n.data(),
                             batch.max_rows(), cache.pages, out.data(), batch.width(), faults.fault(),
                             segment);
  EXPECT_TRUE(same_bits(want.data(), from_device(context, out).data(), out.size(), batch.width()))
      << "decode";
  EXPECT_EQ(faults.value(), cuda::kNoFault);
}

// Token by token: what the pages hold was put there by the steps before, each with its fresh key.
void expect_tokens(const Context& context, const Batch& batch,
                   int64_t segment = numerics::kAttentionSegment) {
  const DeviceBuffer<Bf16> qkv = on_device(context, batch.qkv);
  const Pages cache(context, batch, 6);
  DeviceBuffer<Bf16> out = poisoned_on_device<Bf16>(context, batch.total * batch.width());
  Faults faults(context);
  const Bf16* k = qkv.data() + batch.width();
  const FreshKeysCuda fresh{k, k + batch.shape.kv_heads * batch.shape.head_size, batch.ld};
  for (int32_t position = 0; position < batch.max_rows(); ++position) {
    std::vector<int32_t> sequence(batch.total, -1), keys(batch.total, 0);
    for (size_t i = 0; i < batch.begin.size(); ++i) {
      if (position >= batch.rows[i]) continue;
      sequence[batch.begin[i] + position] = static_cast<int32_t>(i);
      keys[batch.begin[i] + position] = position + 1;
    }
    const DeviceBuffer<int32_t> s = on_device(context, sequence), n = on_device(context, keys);
    attention_decode_bf16_cuda(context, batch.shape, qkv.data(), batch.ld, batch.total, s.data(), n.data(),
                               batch.max_rows(), cache.pages, out.data(), batch.width(), faults.fault(),
                               segment, fresh);
  }
  std::vector<Bf16> want = batch.out;
  for (size_t i = 0; i < batch.begin.size(); ++i) {
    const int64_t end = batch.begin[i] + batch.rows[i];
    std::fill(want.begin() + end * batch.width(), want.begin() + (end + 15) / 16 * 16 * batch.width(),
              kPoison);
  }
  EXPECT_TRUE(same_bits(want.data(), from_device(context, out).data(), out.size(), batch.width()));
  EXPECT_EQ(faults.value(), cuda::kNoFault);
}

TEST(AttentionBf16Cuda, TokenByToken) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const int sms : cases<int>({0, 2}, 1)) {
    const Context context(0, sms);
    for (const AttentionShape& shape :
         cases<AttentionShape>({std::begin(kSmallShapes), std::end(kSmallShapes)}, 3)) {
      if (shape.head_size % 8 != 0) continue;
      SCOPED_TRACE(name_of(shape));
      Batch batch(shape, cases<int>({1, 17, 66, 64, 65, 130}, 3), 26, 2.0F);
      batch.forward_ref();
      expect_tokens(context, batch);
    }
  }
  const Context context(0);
  if (lockstep::testing::sanitized()) return;  // RolloutOverSegments has segments
  Batch batch({7, 1, 64}, {1030, 530}, 27, 2.0F);
  batch.forward_ref();
  expect_tokens(context, batch);
  Batch whole({1, 1, 128}, {700}, 28, 2.0F);
  whole.forward_ref(0);
  expect_tokens(context, whole, 0);
}

TEST(AttentionBf16Cuda, RolloutEqualsTheWholeSequence) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  for (const AttentionShape& shape : kSmallShapes) {
    SCOPED_TRACE(name_of(shape));
    Batch batch(shape, {1, 17, 64, 65, 130}, 21, 2.0F);
    batch.forward_ref();
    expect_rollout(context, batch, {7, 64, 1, 40});
  }
}

TEST(AttentionBf16Cuda, RolloutOverSegments) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0, 3);
  Batch batch({2, 1, 64}, {1100, 530}, 22, 2.0F);
  batch.forward_ref();
  expect_rollout(context, batch, {100, 500});
  Batch small({9, 1, 16}, {400}, 23, 4.0F);
  for (int64_t segment : cases<int64_t>({64, 256, 0}, 1)) {
    small.forward_ref(segment);
    expect_rollout(context, small, {150}, segment);
  }
  Batch widest({2, 1, 256}, {330}, 24, 1.0F);
  widest.forward_ref();
  expect_rollout(context, widest, {200});
}

TEST(AttentionBf16Cuda, DecodeReportsABadScore) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  Batch batch({2, 1, 64}, {100}, 25, 1.0F);
  for (Bf16& x : batch.qkv) x = numerics::float_to_bfloat16(numerics::bfloat16_to_float(x) * 3000.0F);
  batch.forward_ref();
  EXPECT_FALSE(batch.ok);
  const DeviceBuffer<Bf16> qkv = on_device(context, batch.qkv);
  const Pages cache(context, batch, 5);
  const DeviceBuffer<int32_t> sequence = on_device(context, std::vector<int32_t>(100, 0));
  std::vector<int32_t> position(100);
  for (int i = 0; i < 100; ++i) position[i] = i;
  const DeviceBuffer<int32_t> positions = on_device(context, position);
  const DeviceBuffer<int32_t> keys = on_device(context, std::vector<int32_t>{100});
  write_kv_pages_bf16_cuda(context, batch.shape, qkv.data() + 128, qkv.data() + 192, batch.ld, 100,
                           sequence.data(), positions.data(), cache.pages);
  DeviceBuffer<Bf16> out(128);
  Faults faults(context);
  attention_decode_bf16_cuda(context, batch.shape, qkv.data(), batch.ld, 1, sequence.data(), keys.data(), 100,
                             cache.pages, out.data(), 128, faults.fault(40));
  EXPECT_EQ(faults.value(), 40ULL);
}

// ---- backward ----

void expect_backward(const Context& context, Batch& batch, bool rotate,
                     int64_t chunk = numerics::kGradientChunk, float gradient = 1.0F) {
  batch.forward_ref();
  ASSERT_TRUE(batch.ok);
  TestRandom random(31);
  std::vector<Bf16> d_out(batch.total * batch.width(), 0);
  for (size_t i = 0; i < batch.begin.size(); ++i) {
    const std::vector<Bf16> values = random_bf16(random, batch.rows[i] * batch.width(), gradient);
    std::copy(values.begin(), values.end(), d_out.begin() + batch.begin[i] * batch.width());
  }
  const int64_t angles = batch.max_rows() * batch.shape.head_size / 2;
  const std::vector<float> cosine = random.values(angles), sine = random.values(angles);
  std::vector<Bf16> want(batch.total * batch.ld, kPoison);
  const int64_t written = batch.width() + 2 * batch.shape.kv_heads * batch.shape.head_size;
  for (size_t i = 0; i < batch.begin.size(); ++i) {
    for (int64_t row = batch.begin[i] + batch.rows[i]; row < batch.begin[i] + (batch.rows[i] + 15) / 16 * 16;
         ++row)
      std::fill_n(want.begin() + row * batch.ld, written, Bf16{0});
  }
  const std::vector<AttentionSample> list = batch.samples();
  attention_backward_bf16_ref(
      batch.shape, batch.qkv.data(), batch.ld, batch.out.data(), d_out.data(), batch.max_exponent.data(),
      batch.inverse_sum.data(), list.data(), static_cast<int64_t>(list.size()),
      rotate ? AttentionRope{cosine.data(), sine.data()} : AttentionRope{}, want.data(), chunk);

  const DeviceBuffer<Bf16> qkv = on_device(context, batch.qkv), out = on_device(context, batch.out),
                           gradients = on_device(context, d_out);
  const DeviceBuffer<float> m = on_device(context, batch.max_exponent),
                            r = on_device(context, batch.inverse_sum), cosines = on_device(context, cosine),
                            sines = on_device(context, sine);
  DeviceBuffer<Bf16> d_qkv = poisoned_on_device<Bf16>(context, batch.total * batch.ld);
  const DeviceSamples samples(context, batch);
  attention_backward_bf16_cuda(context, batch.shape, qkv.data(), batch.ld, out.data(), gradients.data(),
                               m.data(), r.data(), samples.samples,
                               rotate ? AttentionRope{cosines.data(), sines.data()} : AttentionRope{},
                               d_qkv.data(), chunk);
  EXPECT_TRUE(same_bits(want.data(), from_device(context, d_qkv).data(), d_qkv.size(), batch.ld));
}

TEST(AttentionBf16Cuda, BackwardOfEveryShape) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  for (const AttentionShape& shape : kSmallShapes) {
    SCOPED_TRACE(name_of(shape));
    Batch batch(shape, {1, 15, 16, 17, 63, 64, 65, 130}, 32, 2.0F, shape.head_size == 128 ? 16 : 0);
    expect_backward(context, batch, shape.head_size != 80);
  }
}

TEST(AttentionBf16Cuda, BackwardOfTheRecipe) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  Batch batch({7, 1, 64}, {400, 0, 33}, 33, 1.5F);
  expect_backward(context, batch, true);
}

TEST(AttentionBf16Cuda, BackwardInChunks) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0, 7);
  for (int64_t chunk : cases<int64_t>({96, 16, 320}, 1)) {
    SCOPED_TRACE(chunk);
    Batch batch({3, 1, 64}, {150, 200}, 34, 2.0F);
    expect_backward(context, batch, true, chunk);
    Batch wide({2, 1, 128}, {145}, 35, 2.0F);
    expect_backward(context, wide, true, chunk);
    Batch widest({2, 1, 200}, {100}, 36, 1.0F);
    expect_backward(context, widest, false, chunk);
  }
}

TEST(AttentionBf16Cuda, BackwardWithLargeAndTinyNumbers) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  for (float scale : cases<float>({6.0F, 25.0F}, 1)) {
    for (float gradient : {1e-36F, 1e-20F, 1e4F}) {
      SCOPED_TRACE(scale);
      SCOPED_TRACE(gradient);
      Batch batch({3, 1, 64}, {150, 65}, 37, scale);
      expect_backward(context, batch, true, numerics::kGradientChunk, gradient);
    }
  }
}

TEST(AttentionBf16Cuda, BackwardOverLongSamples) {
  LOCKSTEP_NEEDS_HOPPER();
  Context context(0);
  Batch batch({2, 1, 32}, {1100}, 38, 2.0F);
  expect_backward(context, batch, true);
}

}  // namespace
}  // namespace lockstep::ops
