// SPDX-License-Identifier: Apache-2.0
// Products of profile bf16 on a CPU, by emulation of TC16 (numerics/tc16_tile.h): the bits of matmul_bf16.h.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "device/cpu/context.h"
#include "ops/matmul/matmul_bf16.h"

namespace lockstep::ops {

// W in panels of 16 rows for the forward product: [panel][group of 16 k][16][16], zeros past n and k.
class PackedMatrixBf16 {
 public:
  // Copies w [n, k]. A second pack() into the same object reuses its memory.
  void pack(const cpu::Context& context, const Bf16* w, int64_t n, int64_t k);
  const Bf16* panel(int64_t p) const { return data_.data() + p * groups_ * 256; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  static int64_t bytes_for(int64_t n, int64_t k);

 private:
  Buffer<Bf16> data_;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t groups_ = 0;
};

void matmul_bf16_forward_cpu(const cpu::Context& context, const Bf16* x, int64_t ldx,
                             const PackedMatrixBf16& w, int64_t m, float* y, int64_t ldy);
void matmul_bf16_input_gradient_cpu(const cpu::Context& context, const Bf16* dy, int64_t lddy, const Bf16* w,
                                    int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx);
[[nodiscard]] bool matmul_bf16_weight_gradient_cpu(const cpu::Context& context, const Bf16* dy, int64_t lddy,
                                                   const Bf16* x, int64_t ldx, int64_t rows, int64_t n,
                                                   int64_t k, const WeightGradientTarget& target);

// What follows a product, in this order: bias, then RoPE or residual, then the rounding into out [m, n]. y is
// overwritten where there is a bias or RoPE.
struct EpilogueBf16 {
  const Bf16* bias = nullptr;
  const RopeEpilogue* rope = nullptr;
  const Bf16* residual = nullptr;  // may be out
  int64_t ld_residual = 0;
};
void matmul_bf16_epilogue_cpu(const cpu::Context& context, float* y, int64_t ldy, int64_t m, int64_t n,
                              const EpilogueBf16& epilogue, Bf16* out, int64_t ldo);
void matmul_bf16_swiglu_cpu(const cpu::Context& context, const float* y, int64_t ldy, int64_t m, int64_t f,
                            Bf16* gate_up, int64_t ld_gate_up, Bf16* act, int64_t ld_act);

}  // namespace lockstep::ops
