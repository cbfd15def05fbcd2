// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU against its definition, byte for byte: samples, pages, chunked prefill, decode,
// backward.
#include "ops/attention/attention_cuda.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "ops/attention/attention_test_support.h"
#include "sanitized.h"

namespace lockstep::ops {
namespace {

using cuda::DeviceBuffer;
using lockstep::testing::cases;
using lockstep::testing::poisoned;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using ops::testing::ForwardResult;
using ops::testing::Sequence;
using ops::testing::whole_ref;

class AttentionCuda : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPU(); }
};

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

const std::vector<AttentionShape> kShapes = {{1, 1, 8},   {2, 2, 24},  {4, 2, 24},  {14, 2, 64},
                                             {2, 1, 128}, {1, 1, 256}, {3, 3, 10},  {6, 3, 2},
                                             {2, 1, 90},  {5, 1, 66},  {2, 1, 200}, {20, 1, 32}};

std::string name(const AttentionShape& s) {
  return "heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + ", size " +
         std::to_string(s.head_size);
}

// Samples one after another in one matrix, each at a multiple of `align` rows; the rows between are NaN.
struct Batch {
  AttentionShape shape;
  std::vector<Sequence> sequences;
  std::vector<int32_t> first_row, rows;
  std::vector<float> qkv, out, max_exponent, inverse_sum, d_out;
  int64_t total = 0, max_rows = 0;
  bool ok = true;

  Batch(const AttentionShape& s, const std::vector<Sequence>& all, int64_t align, float gradient_scale = 1.0F)
      : shape(s), sequences(all) {
    for (const Sequence& sequence : sequences) {
      first_row.push_back(static_cast<int32_t>(total));
      rows.push_back(static_cast<int32_t>(sequence.length));
      total += (sequence.length + align - 1) / align * align;
      max_rows = std::max(max_rows, sequence.length);
    }
    qkv = poisoned(total * ld());
    out = poisoned(total * width());
    d_out = poisoned(total * width());
    max_exponent = poisoned(total * s.heads);
    inverse_sum = poisoned(total * s.heads);
    TestRandom random(77);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const ForwardResult forward = whole_ref(sequences[i]);
      ok = ok && forward.ok;
      const auto put = [&](std::vector<float>& to, const std::vector<float>& from, int64_t columns) {
        std::copy(from.begin(), from.end(), to.begin() + first_row[i] * columns);
      };
      put(qkv, sequences[i].qkv, ld());
      put(out, forward.out, width());
      put(max_exponent, forward.max_exponent, s.heads);
      put(inverse_sum, forward.inverse_sum, s.heads);
      put(d_out, random.values(rows[i] * width(), gradient_scale), width());
    }
  }
  int64_t ld() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_size; }
  int64_t width() const { return shape.heads * shape.head_size; }
};

std::vector<Sequence> make(const AttentionShape& shape, const std::vector<int64_t>& lengths, uint64_t seed,
                           float scale = 1.5F) {
  std::vector<Sequence> all;
  for (const int64_t length : lengths) all.emplace_back(shape, length, seed++, scale);
  return all;
}

void expect_samples(const Batch& b, int sms) {
  const cuda::Context context(0, sms);
  const auto qkv = upload(context, b.qkv);
  const auto first_row = upload(context, b.first_row), rows = upload(context, b.rows);
  auto out = upload(context, poisoned(b.total * b.width()));
  auto max = upload(context, poisoned(b.total * b.shape.heads)),
       sum = upload(context, poisoned(b.total * b.shape.heads));
  auto fault = upload(context, std::vector<unsigned long long>{cuda::kNoFault});
  const AttentionRows samples = {first_row.data(), rows.data(), nullptr, static_cast<int64_t>(b.rows.size()),
                                 b.max_rows};
  attention_forward_samples_fp32_cuda(context, b.shape, qkv.data(), b.ld(), samples, out.data(), b.width(),
                                      max.data(), sum.data(), {fault.data(), 3});
  ASSERT_EQ(download(context, fault, 1)[0], b.ok ? cuda::kNoFault : 3U);
  if (!b.ok) return;
  EXPECT_TRUE(
      same_bits(b.out.data(), download(context, out, b.out.size()).data(), b.total * b.width(), b.width()));
  EXPECT_TRUE(same_bits(b.max_exponent, download(context, max, b.max_exponent.size())));
  EXPECT_TRUE(same_bits(b.inverse_sum, download(context, sum, b.inverse_sum.size())));
}

void expect_backward(const Batch& b, int sms) {
  ASSERT_TRUE(b.ok);
  std::vector<float> want = poisoned(b.total * b.ld());
  std::vector<AttentionSample> which;
  for (size_t i = 0; i < b.rows.size(); ++i) which.push_back({b.first_row[i], b.first_row[i] + b.rows[i]});
  attention_backward_ref(b.shape, b.qkv.data(), b.out.data(), b.d_out.data(), b.max_exponent.data(),
                         b.inverse_sum.data(), which.data(), static_cast<int64_t>(which.size()), want.data());
  const cuda::Context context(0, sms);
  const auto qkv = upload(context, b.qkv), out = upload(context, b.out), d_out = upload(context, b.d_out);
  const auto max = upload(context, b.max_exponent), sum = upload(context, b.inverse_sum);
  const auto first_row = upload(context, b.first_row), rows = upload(context, b.rows);
  auto d_qkv = upload(context, poisoned(b.total * b.ld()));
  const AttentionRows samples = {first_row.data(), rows.data(), nullptr, static_cast<int64_t>(b.rows.size()),
                                 b.max_rows};
  attention_backward_fp32_cuda(context, b.shape, qkv.data(), out.data(), d_out.data(), max.data(), sum.data(),
                               samples, b.total, d_qkv.data());
  EXPECT_TRUE(same_bits(want.data(), download(context, d_qkv, want.size()).data(), b.total * b.ld(), b.ld()));
}

TEST_F(AttentionCuda, SamplesEqualReferenceForEveryShape) {
  uint64_t seed = 1000;
  for (const AttentionShape& shape : cases(kShapes, 5)) {
    SCOPED_TRACE(name(shape));
    for (const int64_t align : cases<int64_t>({1, 16}, 1)) {
      const Batch batch(shape, make(shape, {1, 15, 64, 65, 97, 130}, seed += 10), align);
      for (const int sms : cases<int>({7, 0, 1}, 1)) expect_samples(batch, sms);
      expect_backward(batch, align == 1 ? 0 : 7);
    }
  }
}

TEST_F(AttentionCuda, LongSamplesMergeSegments) {
  for (const AttentionShape& shape : cases<AttentionShape>({{2, 1, 64}, {1, 1, 24}, {2, 1, 130}}, 1)) {
    SCOPED_TRACE(name(shape));
    const Batch batch(shape, make(shape, {512, 513, 1100, 40}, 5, 2.0F), 16);
    expect_samples(batch, 0);
    expect_backward(batch, 0);
  }
}

TEST_F(AttentionCuda, BackwardOfTinyGradientsAndPeakedWeights) {
  for (const float scale : {0.1F, 20.0F, 300.0F}) {
    for (const float gradient_scale : {1.0F, 1e-37F, 1e-44F}) {
      SCOPED_TRACE(std::to_string(scale) + " " + std::to_string(gradient_scale));
      const AttentionShape shape{4, 2, 8};
      expect_backward(Batch(shape, make(shape, {70, 200}, 3, scale), 1, gradient_scale), 0);
    }
  }
}

// 160 heads of 200 queries are 33,280 steps: three chunks, both cuts inside a tile of queries; of 131, two.
TEST_F(AttentionCuda, BackwardCutsLongChainsInChunks) {
  for (const AttentionShape& shape : cases<AttentionShape>({{160, 1, 2}, {130, 1, 72}}, 1)) {
    SCOPED_TRACE(name(shape));
    expect_backward(Batch(shape, make(shape, cases<int64_t>({131, 200}, 1), 4, 1.0F), 16), 0);
  }
}

TEST_F(AttentionCuda, ExtremeScoresAndTinyValues) {
  const AttentionShape shape{2, 1, 8};
  for (const float key_scale : {1.0F, 30.0F, 3000.0F}) {
    for (const float value_scale : {1.0F, 1e-38F, 3e-45F}) {
      SCOPED_TRACE(std::to_string(key_scale) + " " + std::to_string(value_scale));
      Sequence s(shape, 700, 9, 5.0F);
      TestRandom random(10);
      for (int64_t row = 0; row < s.length; ++row) {
        for (int64_t i = 16; i < 24; ++i)
          s.qkv[row * s.ld() + i] *= key_scale * static_cast<float>(row) / 700;
        for (int64_t i = 24; i < 32; ++i) s.qkv[row * s.ld() + i] = random.value() * value_scale;
      }
      s.fill_blocks();
      expect_samples(Batch(shape, {s}, 1), 0);
    }
  }
}

TEST_F(AttentionCuda, OldSumsEndAtARiseOf126) {
  const AttentionShape shape{1, 1, 2};
  for (const int64_t length : {65, 513}) {
    for (const float rise : {125.0F, 126.0F, 127.0F}) {
      Sequence s(shape, length, 1, 0.0F);
      for (int64_t row = 0; row < length; ++row) {
        s.qkv[row * 6] = 1.0F;
        s.qkv[row * 6 + 4] = row < 64 ? -0x1p100F : -0.0F;
        s.qkv[row * 6 + 5] = row < 64 ? 0x1p100F : 0.0F;
      }
      s.qkv[(length - 1) * 6 + 2] = rise * 0.98025814F;  // ln 2 * sqrt(2)
      s.fill_blocks();
      expect_samples(Batch(shape, {s}, 1), 0);
    }
  }
}

TEST_F(AttentionCuda, RefusesScoresOutOfRangeOnlyWhereVisible) {
  const AttentionShape shape{1, 1, 8};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F, 4.2e6F}) {
    for (const int64_t rows : {80, 81}) {
      Sequence s(shape, rows, 11);
      for (int64_t row = 0; row < rows; ++row) s.qkv[row * s.ld()] = 1.0F;
      if (rows > 80)
        for (int64_t i = 0; i < 8; ++i) s.qkv[80 * s.ld() + 8 + i] = i == 0 ? bad : 0.0F;
      s.fill_blocks();
      const Batch batch(shape, {s}, 1);
      EXPECT_EQ(batch.ok, rows == 80);
      expect_samples(batch, 0);
    }
  }
}

// Sequences in shuffled pages of a layer behind another one: prefill in chunks, then one row at a time.
void expect_paged(int sms) {
  for (const AttentionShape& shape : cases(kShapes, 5)) {
    SCOPED_TRACE(name(shape));
    const int64_t d = shape.head_size, ld = (shape.heads + 2 * shape.kv_heads) * d, width = shape.heads * d;
    const std::vector<Sequence> all = make(shape, {70, 1, 300, 64, 580}, 60, 2.0F);
    const int64_t n = static_cast<int64_t>(all.size()), max_pages = 10, block = 2 * shape.kv_heads * 64 * d;
    std::vector<int32_t> table(static_cast<size_t>(n * max_pages));
    std::iota(table.begin(), table.end(), 0);
    TestRandom random(5);
    for (size_t i = table.size() - 1; i > 0; --i)
      std::swap(table[i], table[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    const cuda::Context context(0, sms);
    auto memory = upload(context, poisoned((n * max_pages + 1) * 2 * block));
    const auto dtable = upload(context, table);
    const KvPages pages = {memory.data() + block, 2 * block, dtable.data(), max_pages};
    auto fault = upload(context, std::vector<unsigned long long>{cuda::kNoFault});
    std::vector<int64_t> done(all.size(), 0);
    std::vector<ForwardResult> want;
    for (const Sequence& s : all) want.push_back(whole_ref(s));
    for (const int64_t most :
         {50, 1, 2, 64, 1, 130, 330, 1, 1, 400}) {  // rows of each sequence in a step, at most
      std::vector<float> qkv;
      std::vector<int32_t> first_row, rows, first_position;
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t count = std::min(most, all[i].length - done[i]);
        if (most == 1 && count == 0) continue;
        first_row.push_back(static_cast<int32_t>(static_cast<int64_t>(qkv.size()) / ld));
        rows.push_back(static_cast<int32_t>(count));
        first_position.push_back(static_cast<int32_t>(done[i]));
        qkv.insert(qkv.end(), all[i].qkv.begin() + done[i] * ld, all[i].qkv.begin() + (done[i] + count) * ld);
      }
      // The table has a row for each sequence of the call.
      std::vector<int32_t> call_table;
      for (size_t i = 0; i < all.size(); ++i) {
        if (most == 1 && all[i].length == done[i]) continue;
        call_table.insert(call_table.end(), table.begin() + static_cast<int64_t>(i) * max_pages,
                          table.begin() + static_cast<int64_t>(i + 1) * max_pages);
      }
      const int64_t total = static_cast<int64_t>(qkv.size()) / ld;
      if (total == 0) continue;
      const auto dqkv = upload(context, qkv);
      const auto d_first = upload(context, first_row), d_rows = upload(context, rows);
      const auto d_position = upload(context, first_position), d_table = upload(context, call_table);
      const AttentionRows call = {d_first.data(), most == 1 ? nullptr : d_rows.data(), d_position.data(),
                                  static_cast<int64_t>(first_row.size()), most};
      KvPages now = pages;
      now.table = d_table.data();
      const float* k = dqkv.data() + width;
      write_kv_pages_fp32_cuda(context, shape, k, k + shape.kv_heads * d, ld, call, now);
      auto out = upload(context, poisoned(total * width));
      attention_forward_paged_fp32_cuda(context, shape, dqkv.data(), ld, call, now, out.data(), width,
                                        nullptr, nullptr, {fault.data(), 3});
      const std::vector<float> got = download(context, out, static_cast<size_t>(total * width));
      int64_t at = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t count = std::min(most, all[i].length - done[i]);
        EXPECT_TRUE(
            same_bits(want[i].out.data() + done[i] * width, got.data() + at * width, count * width, width))
            << "sequence " << i << " from " << done[i] << ", at most " << most;
        at += count;
        done[i] += count;
      }
    }
    EXPECT_EQ(download(context, fault, 1)[0], cuda::kNoFault);
  }
}

TEST_F(AttentionCuda, PagedPrefillInChunksAndDecode) {
  expect_paged(0);  // few sequences: segments apart
  expect_paged(1);
}

}  // namespace
}  // namespace lockstep::ops
