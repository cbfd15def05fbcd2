// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cpu_contexts.h"
#include "ops/attention/attention_test_support.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::poisoned;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using ops::testing::ForwardResult;
using ops::testing::Sequence;
using ops::testing::whole_ref;

// Samples of given lengths one after another in one matrix, forward pass done.
struct Batch {
  AttentionShape shape;
  std::vector<float> qkv, out, d_out, max_exponent, inverse_sum;
  std::vector<AttentionSample> samples;
  int64_t rows = 0;

  Batch(const AttentionShape& s, const std::vector<int64_t>& lengths, uint64_t seed, float scale = 1.5F,
        float gradient_scale = 1.0F)
      : shape(s) {
    for (const int64_t length : lengths) {
      const Sequence sequence(s, length, seed++, scale);
      const ForwardResult forward = whole_ref(sequence);
      EXPECT_TRUE(forward.ok);
      qkv.insert(qkv.end(), sequence.qkv.begin(), sequence.qkv.end());
      out.insert(out.end(), forward.out.begin(), forward.out.end());
      max_exponent.insert(max_exponent.end(), forward.max_exponent.begin(), forward.max_exponent.end());
      inverse_sum.insert(inverse_sum.end(), forward.inverse_sum.begin(), forward.inverse_sum.end());
      samples.push_back({rows, rows + length});
      rows += length;
    }
    d_out = TestRandom(seed).values(static_cast<int64_t>(out.size()), gradient_scale);
  }
  int64_t ld() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_size; }

  std::vector<float> ref(const std::vector<AttentionSample>& which) const {
    std::vector<float> d_qkv = poisoned(rows * ld());
    attention_backward_ref(shape, qkv.data(), out.data(), d_out.data(), max_exponent.data(),
                           inverse_sum.data(), which.data(), static_cast<int64_t>(which.size()),
                           d_qkv.data());
    return d_qkv;
  }
  std::vector<float> cpu(const cpu::Context& context, const std::vector<AttentionSample>& which) const {
    std::vector<float> d_qkv = poisoned(rows * ld());
    attention_backward_cpu(context, shape, qkv.data(), out.data(), d_out.data(), max_exponent.data(),
                           inverse_sum.data(), which.data(), static_cast<int64_t>(which.size()),
                           d_qkv.data());
    return d_qkv;
  }
};

TEST(AttentionBackward, EqualsReferenceForEveryShape) {
  uint64_t seed = 1000;
  for (const AttentionShape& shape : std::vector<AttentionShape>{{1, 1, 8},
                                                                 {2, 2, 24},
                                                                 {4, 2, 24},
                                                                 {7, 1, 64},
                                                                 {2, 1, 128},
                                                                 {1, 1, 256},
                                                                 {3, 3, 10},
                                                                 {6, 3, 2},
                                                                 {2, 1, 90}}) {
    SCOPED_TRACE("heads " + std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + ", size " +
                 std::to_string(shape.head_size));
    const Batch batch(shape, {1, 15, 64, 65, 97, 130}, seed);
    seed += 10;
    const std::vector<float> want = batch.ref(batch.samples);
    for_each_context([&](const cpu::Context& context) {
      EXPECT_TRUE(same_bits(want.data(), batch.cpu(context, batch.samples).data(), batch.rows * batch.ld(),
                            batch.ld()));
    });
  }
}

TEST(AttentionBackward, TinyGradientsAndPeakedWeights) {
  for (const float scale : {0.1F, 20.0F, 300.0F}) {
    for (const float gradient_scale : {1.0F, 1e-37F, 1e-44F}) {
      const Batch batch({4, 2, 8}, {70, 200}, 3, scale, gradient_scale);
      const std::vector<float> want = batch.ref(batch.samples);
      for_each_context([&](const cpu::Context& context) {
        EXPECT_TRUE(same_bits(want, batch.cpu(context, batch.samples))) << scale << " " << gradient_scale;
      });
    }
  }
}

// 160 heads of 200 queries are 33,280 steps: the chains of the first keys have three chunks, and both cuts
// fall inside a tile of queries.
TEST(AttentionBackward, LongChainsAreCutInChunks) {
  const Batch batch({160, 1, 2}, {200}, 4, 1.0F);
  const std::vector<float> want = batch.ref(batch.samples);
  for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (!cpu::isa_available(isa)) continue;
    const cpu::Context context(2, isa);
    EXPECT_TRUE(same_bits(want.data(), batch.cpu(context, batch.samples).data(), batch.rows * batch.ld(),
                          batch.ld()));
  }
}

// Which samples share a call does not matter.
TEST(AttentionBackward, SamplesAreIndependent) {
  const Batch batch({4, 2, 8}, {33, 80, 5}, 5);
  const std::vector<float> want = batch.ref(batch.samples);
  const cpu::Context context(2, cpu::Isa::kScalar);
  for (const AttentionSample& sample : batch.samples) {
    const std::vector<float> got = batch.cpu(context, {sample});
    EXPECT_TRUE(same_bits(want.data() + sample.begin * batch.ld(), got.data() + sample.begin * batch.ld(),
                          (sample.end - sample.begin) * batch.ld()));
  }
}

// Outside check: dLoss/dx for Loss = sum d_out * attention(q, k, v), by central differences of the exact
// function in binary64. Truncation is O(h^2) = 1e-8 relative at h = 1e-4, rounding 1e-16/h = 1e-12; the
// binary32 chains carry under 200 roundings of terms of size about 1, so 2e-5 absolute is ample and far
// below the gradients' size.
double exact_loss(const AttentionShape& shape, const std::vector<double>& qkv,
                  const std::vector<float>& d_out, int64_t rows) {
  const int64_t d = shape.head_size;
  const int64_t ld = (shape.heads + 2 * shape.kv_heads) * d;
  double loss = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t kv = head / (shape.heads / shape.kv_heads);
      double sum = 0;
      std::vector<double> o(d);
      for (int64_t j = 0; j <= row; ++j) {
        double dot = 0;
        for (int64_t i = 0; i < d; ++i)
          dot += qkv[row * ld + head * d + i] * qkv[j * ld + (shape.heads + kv) * d + i];
        const double w = std::exp(dot / std::sqrt(static_cast<double>(d)));
        sum += w;
        for (int64_t i = 0; i < d; ++i) o[i] += w * qkv[j * ld + (shape.heads + shape.kv_heads + kv) * d + i];
      }
      for (int64_t i = 0; i < d; ++i) loss += d_out[(row * shape.heads + head) * d + i] * o[i] / sum;
    }
  }
  return loss;
}

TEST(AttentionBackward, EqualsFiniteDifferences) {
  const Batch batch({4, 2, 6}, {23}, 6);
  const std::vector<float> got = batch.ref(batch.samples);
  std::vector<double> x(batch.qkv.begin(), batch.qkv.end());
  for (size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + 1e-4;
    const double above = exact_loss(batch.shape, x, batch.d_out, batch.rows);
    x[i] = saved - 1e-4;
    const double below = exact_loss(batch.shape, x, batch.d_out, batch.rows);
    x[i] = saved;
    EXPECT_NEAR(got[i], (above - below) / 2e-4, 2e-5) << "element " << i;
  }
}

}  // namespace
}  // namespace lockstep::ops
