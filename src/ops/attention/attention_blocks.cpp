// SPDX-License-Identifier: Apache-2.0
// Blocks of keys and values, and the choice of kernels.
#include "core/check.h"
#include "ops/attention/attention_tasks.h"

namespace lockstep::ops {

using numerics::kKeyBlock;

int64_t kv_block_floats(const AttentionShape& shape) {
  return shape.kv_heads * shape.head_size * kKeyBlock;
}

void write_kv_blocks(const AttentionShape& shape, const float* k, const float* v, int64_t ld, int64_t n,
                     int64_t first, float* const* k_blocks, float* const* v_blocks) {
  const int64_t d = shape.head_size;
  for (int64_t row = 0; row < n; ++row) {
    const int64_t position = first + row;
    float* k_block = k_blocks[position / kKeyBlock];
    float* v_block = v_blocks[position / kKeyBlock];
    const int64_t slot = position % kKeyBlock;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      for (int64_t i = 0; i < d; ++i) {
        k_block[(head * d + i) * kKeyBlock + slot] = k[row * ld + head * d + i];
        v_block[(head * kKeyBlock + slot) * d + i] = v[row * ld + head * d + i];
      }
    }
  }
}

AttentionKernels attention_kernels(cpu::Isa isa) {
  AttentionKernels kernels = attention_kernels_portable();
  if (isa == cpu::Isa::kAvx2) kernels = attention_kernels_avx2();
  if (isa == cpu::Isa::kAvx512) kernels = attention_kernels_avx512();
  LOCKSTEP_CHECK(kernels.forward_segment != nullptr, "attention was not compiled for this instruction set");
  return kernels;
}

}  // namespace lockstep::ops
