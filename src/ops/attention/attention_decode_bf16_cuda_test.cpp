// SPDX-License-Identifier: Apache-2.0
// Decode steps of many sequences at once against attention_bf16_ref.cpp, byte for byte: few and many rows,
// all lengths, the newest key in the pages or beside them, launch after launch.
#include <algorithm>
#include <string>

#include "cuda_arrays.h"
#include "ops/attention/attention_bf16_cuda.h"
#include "sanitized.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::FaultWord;
using lockstep::testing::OnDevice;
using lockstep::testing::same_bits;
using lockstep::testing::sanitized;
using lockstep::testing::TestRandom;
using numerics::Bf16;

constexpr Bf16 kPoison = 0xFFFF;

// Row i is the last position of sequence i; what the pages hold beyond it is NaN.
struct Step {
  AttentionShape shape;
  int64_t segment, block, max_pages, ld;
  std::vector<int32_t> lengths, table, sequence;
  std::vector<Bf16> qkv, pages, out;

  Step(const AttentionShape& s, const std::vector<int32_t>& n, uint64_t seed, int64_t keys_a_segment,
       float scale)
      : shape(s), segment(keys_a_segment), block(kv_block_elements_bf16(s)), lengths(n) {
    ld = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    max_pages = (*std::max_element(n.begin(), n.end()) + 63) / 64 + 1;
    TestRandom random(seed);
    for (int64_t i = 0; i < static_cast<int64_t>(n.size()) * max_pages; ++i)
      table.push_back(static_cast<int32_t>(i));
    for (size_t i = table.size() - 1; i > 0; --i)
      std::swap(table[i], table[random.below(static_cast<int64_t>(i) + 1)]);
    pages.assign(table.size() * 2 * block, kPoison);
    qkv.assign(static_cast<int64_t>(n.size()) * ld, 0);
    out.assign(static_cast<int64_t>(n.size()) * width(), kPoison);
    for (size_t i = 0; i < n.size(); ++i) {
      sequence.push_back(static_cast<int32_t>(i));
      if (n[i] > 0) fill(random, i, scale);
    }
  }
  int64_t width() const { return shape.heads * shape.head_size; }
  int64_t kv_width() const { return shape.kv_heads * shape.head_size; }

  void fill(TestRandom& random, size_t i, float scale) {
    std::vector<Bf16*> k, v;
    for (int64_t page = 0; page < max_pages; ++page) {
      k.push_back(pages.data() + table[i * max_pages + page] * 2 * block);
      v.push_back(k.back() + block);
    }
    std::vector<Bf16> rows(lengths[i] * ld);
    for (int64_t row = 0; row < lengths[i]; ++row) {
      // Later keys are larger: the maximum rises from block to block.
      const float factor = scale * (0.1F + static_cast<float>(row % 200) * 0.01F);
      for (int64_t c = 0; c < ld; ++c)
        rows[row * ld + c] = numerics::float_to_bfloat16(random.value() * factor);
    }
    const Bf16* from = rows.data() + width();
    write_kv_blocks_bf16(shape, from, from + kv_width(), ld, lengths[i], 0, k.data(), v.data());
    std::copy_n(rows.end() - ld, ld, qkv.begin() + static_cast<int64_t>(i) * ld);
    const AttentionRunBf16 run{static_cast<int64_t>(i), 1, lengths[i] - 1, k.data(), v.data()};
    EXPECT_TRUE(attention_forward_bf16_ref(shape, qkv.data(), ld, &run, 1, out.data(), width(), nullptr,
                                           nullptr, segment));
  }
  // The newest key and value of every sequence taken out of the pages.
  std::vector<Bf16> pages_before() const {
    std::vector<Bf16> before = pages;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] == 0) continue;
      const int64_t last = lengths[i] - 1;
      for (int64_t head = 0; head < 2 * shape.kv_heads; ++head)
        std::fill_n(before.begin() + table[i * max_pages + last / 64] * 2 * block +
                        (head * 64 + last % 64) * shape.head_size,
                    shape.head_size, kPoison);
    }
    return before;
  }

  void expect_step(const cuda::Context& context, bool with_fresh, int repeats) const {
    OnDevice<Bf16> memory(context, with_fresh ? pages_before() : pages);
    OnDevice<Bf16> rows(context, qkv);
    OnDevice<int32_t> tables(context, table), sequences(context, sequence), keys(context, lengths);
    const int64_t max_keys = *std::max_element(lengths.begin(), lengths.end());
    const KvPagesCuda cache{memory.data(), 2 * block, 0, block, tables.data(), max_pages};
    FreshKeysCuda fresh;
    if (with_fresh) fresh = {rows.data() + width(), rows.data() + width() + kv_width(), ld};
    FaultWord fault(context);
    std::vector<OnDevice<Bf16>> results;
    for (int i = 0; i < repeats; ++i) results.emplace_back(context, static_cast<int64_t>(out.size()));
    for (OnDevice<Bf16>& result : results)
      attention_decode_bf16_cuda(context, shape, rows.data(), ld, static_cast<int64_t>(lengths.size()),
                                 sequences.data(), keys.data(), max_keys, cache, result.data(), width(),
                                 fault.at(), segment, fresh);
    for (OnDevice<Bf16>& result : results)
      ASSERT_TRUE(same_bits(out.data(), result.host().data(), out.size(), width()));
    EXPECT_EQ(fault.value(), cuda::kNoFault);
    EXPECT_TRUE(same_bits(pages.data(), memory.host().data(), pages.size(), shape.head_size)) << "pages";
  }
  void expect(const cuda::Context& context, int repeats = 3) const {
    for (const bool fresh : {false, true}) {
      SCOPED_TRACE(fresh ? "fresh keys" : "all in the pages");
      expect_step(context, fresh, repeats);
    }
  }
};

std::vector<int32_t> some_lengths(int n, int32_t longest, uint64_t seed) {
  TestRandom random(seed);
  std::vector<int32_t> lengths;
  for (int i = 0; i < n; ++i) lengths.push_back(1 + static_cast<int32_t>(random.below(longest)));
  return lengths;
}

TEST(AttentionDecodeBf16Cuda, TheRecipe) {
  LOCKSTEP_NEEDS_HOPPER();
  const Step step({14, 2, 64}, some_lengths(256, sanitized() ? 80 : 420, 1), 41, numerics::kAttentionSegment,
                  1.5F);
  for (const int sms : {0, 5}) {
    const cuda::Context context(0, sms);
    step.expect(context, sanitized() ? 2 : 20);
  }
}

TEST(AttentionDecodeBf16Cuda, EveryLength) {
  LOCKSTEP_NEEDS_HOPPER();
  const cuda::Context context(0);
  std::vector<int32_t> lengths;
  for (int32_t n = 0; n <= (sanitized() ? 140 : 330); ++n) lengths.push_back(n);
  Step({1, 1, 64}, lengths, 42, 0, 2.0F).expect(context);
  Step({8, 1, 64}, lengths, 43, 128, 2.0F).expect(context);
  Step({2, 1, 128}, lengths, 44, 192, 2.0F).expect(context);
}

TEST(AttentionDecodeBf16Cuda, ManyRowsOfSeveralSegments) {
  LOCKSTEP_NEEDS_HOPPER();
  const Step one({1, 1, 64}, some_lengths(300, sanitized() ? 600 : 1700, 2), 50, numerics::kAttentionSegment,
                 2.0F);
  const Step two({1, 1, 128}, some_lengths(300, sanitized() ? 600 : 1100, 3), 51, numerics::kAttentionSegment,
                 6.0F);
  for (const int sms : {0, 3}) {
    const cuda::Context context(0, sms);
    one.expect(context);
    two.expect(context);
  }
}

// More thread blocks than multiprocessors, fewer than two each.
TEST(AttentionDecodeBf16Cuda, RowsBetween) {
  LOCKSTEP_NEEDS_HOPPER();
  const cuda::Context context(0);
  const int rows = context.sms() * 3 / 4;
  Step({4, 2, 64}, some_lengths(rows, 700, 4), 52, numerics::kAttentionSegment, 2.0F).expect(context);
  Step({2, 2, 128}, some_lengths(rows, 300, 5), 53, numerics::kAttentionSegment, 2.0F).expect(context);
}

TEST(AttentionDecodeBf16Cuda, FewRows) {
  LOCKSTEP_NEEDS_HOPPER();
  const cuda::Context context(0);
  const AttentionShape shapes[] = {{7, 1, 64}, {14, 2, 64}, {4, 1, 128}, {9, 1, 64}, {12, 1, 128}};
  for (const AttentionShape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_size));
    for (const int64_t segment : {64, 512, 1024, 0}) {
      SCOPED_TRACE(segment);
      Step(shape, {1, 1500, 0, 64, 129, 513}, 45, segment, 1.5F).expect(context);
    }
    Step(shape, {250}, 46, numerics::kAttentionSegment, 1.5F).expect(context, 20);
  }
  Step({7, 1, 64}, {sanitized() ? 2300 : 4500, 2049}, 47, 0, 1.0F).expect(context);
}

// Maxima jump by more than 126, most weights are below the floor.
TEST(AttentionDecodeBf16Cuda, LargeScores) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const int sms : {0, 2}) {
    const cuda::Context context(0, sms);
    for (const float scale : {6.0F, 25.0F, 150.0F}) {
      SCOPED_TRACE(scale);
      Step({6, 2, 64}, {200, 65, 130, 600}, 48, 128, scale).expect(context);
      Step({3, 1, 128}, {200, 65, 130, 600}, 49, numerics::kAttentionSegment, scale).expect(context);
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
