// SPDX-License-Identifier: Apache-2.0
// Sequences with their blocks, for the tests of attention.
#pragma once

#include <vector>

#include "ops/attention/attention.h"
#include "same_bits.h"

namespace lockstep::ops::testing {

using lockstep::testing::TestRandom;

// q, k, v rows of one sequence as columns of one matrix (the layout of the trainer), and the same keys and
// values in blocks.
struct Sequence {
  AttentionShape shape;
  int64_t length = 0;
  std::vector<float> qkv;  // [length, ld]
  std::vector<std::vector<float>> k_memory, v_memory;
  std::vector<float*> k_blocks, v_blocks;

  Sequence(const AttentionShape& s, int64_t n, uint64_t seed, float scale = 1.0F) : shape(s), length(n) {
    TestRandom random(seed);
    qkv = random.values(n * ld(), scale);
    fill_blocks();
  }
  void fill_blocks() {
    k_memory.clear();
    v_memory.clear();
    k_blocks.clear();
    v_blocks.clear();
    for (int64_t block = 0; block * 64 < length; ++block) {
      k_memory.emplace_back(kv_block_floats(shape), 0.0F);
      v_memory.emplace_back(kv_block_floats(shape), 0.0F);
      k_blocks.push_back(k_memory.back().data());
      v_blocks.push_back(v_memory.back().data());
    }
    const float* k = qkv.data() + shape.heads * shape.head_size;
    write_kv_blocks(shape, k, k + shape.kv_heads * shape.head_size, ld(), length, 0, k_blocks.data(),
                    v_blocks.data());
  }
  int64_t ld() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_size; }
  int64_t width() const { return shape.heads * shape.head_size; }
  AttentionRun run(int64_t first_row, int64_t first_position, int64_t rows) const {
    return {first_row, rows, first_position, k_blocks.data(), v_blocks.data()};
  }
};

struct ForwardResult {
  std::vector<float> out, max_exponent, inverse_sum;
  bool ok = false;
  ForwardResult(const AttentionShape& shape, int64_t rows)
      : out(lockstep::testing::poisoned(rows * shape.heads * shape.head_size)),
        max_exponent(lockstep::testing::poisoned(rows * shape.heads)),
        inverse_sum(lockstep::testing::poisoned(rows * shape.heads)) {}
};

inline ::testing::AssertionResult same_result(const ForwardResult& want, const ForwardResult& got) {
  if (want.ok != got.ok) return ::testing::AssertionFailure() << "ok " << want.ok << " and " << got.ok;
  for (auto part : {&ForwardResult::out, &ForwardResult::max_exponent, &ForwardResult::inverse_sum}) {
    auto same = lockstep::testing::same_bits(want.*part, got.*part);
    if (!same) return same;
  }
  return ::testing::AssertionSuccess();
}

// The whole sequence as one run, by the reference.
inline ForwardResult whole_ref(const Sequence& s) {
  ForwardResult result(s.shape, s.length);
  const AttentionRun run = s.run(0, 0, s.length);
  result.ok = attention_forward_ref(s.shape, s.qkv.data(), s.ld(), &run, 1, result.out.data(), s.width(),
                                    result.max_exponent.data(), result.inverse_sum.data());
  return result;
}

}  // namespace lockstep::ops::testing
