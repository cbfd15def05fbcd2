// SPDX-License-Identifier: Apache-2.0
// Products with a weight matrix W [n, k], row-major, and their gradients, profile fp32. All binary32; every
// element of a result is one chain of fma, so its bits depend on its own row of x and of W only
// (docs/numerics.md, Products). Inputs and outputs must not overlap except where said. Row strides (ld*) are
// in elements.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "device/cpu/context.h"

namespace lockstep::ops {

// W in column panels for the forward product: panel p holds rows [p*width, p*width + width) of W as
// [k][width], rows past n are +0. width depends on the instruction set.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // Copies w [n, k]. A second pack() into the same object reuses its memory.
  void pack(const cpu::Context& context, const float* w, int64_t n, int64_t k);
  const float* panel(int64_t p) const { return data_.data() + p * width_ * k_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t width() const { return width_; }
  int64_t size_bytes() const { return data_.size_bytes(); }
  static int64_t bytes_for(const cpu::Context& context, int64_t n, int64_t k);

 private:
  Buffer<float> data_;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t width_ = 0;
};

// After the chunk sums, in this order; null: left out.
struct MatmulEpilogue {
  const float* bias = nullptr;      // [n]: y = y + bias
  const float* residual = nullptr;  // [m, n] with ld_residual: y = residual + y; may be the output itself
  int64_t ld_residual = 0;
};

// y[m, n] = x[m, k] W^T: k ascending in chunks of kForwardChunk, each a chain from +0; the first chunk's sum
// is the start, the others are added ascending. Overwrites y.
void matmul_forward_ref(const float* x, int64_t ldx, const float* w, int64_t m, int64_t n, int64_t k,
                        const MatmulEpilogue& epilogue, float* y, int64_t ldy);
void matmul_forward_cpu(const cpu::Context& context, const float* x, int64_t ldx, const PackedMatrix& w,
                        int64_t m, const MatmulEpilogue& epilogue, float* y, int64_t ldy);

// dx[m, k] = dy[m, n] W: n ascending in chunks of kGradientChunk, as above. Overwrites dx. W is row-major.
void matmul_input_gradient_ref(const float* dy, int64_t lddy, const float* w, int64_t m, int64_t n, int64_t k,
                               float* dx, int64_t lddx);
void matmul_input_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy, const float* w,
                               int64_t m, int64_t n, int64_t k, float* dx, int64_t lddx);

// Where one leaf's gradient of W goes. A leaf's rows may arrive in several calls (micro-batches), in order;
// the chain is cut between calls and goes on from `carry`.
struct WeightGradientTarget {
  bool begins = true;          // first call of this leaf: the chain starts from +0
  bool ends = true;            // last call: the result is rounded into `image`
  int64_t rows_before = 0;     // rows of this leaf in earlier calls
  float* carry = nullptr;      // [n, k] row-major chain between calls; needed unless begins && ends
  float* chunk_sum = nullptr;  // [n, k] sum of whole chunks; needed only when rows_before + rows >
                               // kGradientChunk and not (begins && ends)
  int64_t* image = nullptr;    // [n, k]: += gradient_to_fixed(result) when `ends`
  float bound = 0;             // exclusive bound of |result| (gradient_bound(leaves))
};

// sum over rows t ascending of dy[t, n] * x[t, k], chunks of kGradientChunk rows counted from the leaf's
// start. Returns false when a finished element is out of range (it is then not added; all others are).
[[nodiscard]] bool matmul_weight_gradient_ref(const float* dy, int64_t lddy, const float* x, int64_t ldx,
                                              int64_t rows, int64_t n, int64_t k,
                                              const WeightGradientTarget& target);
[[nodiscard]] bool matmul_weight_gradient_cpu(const cpu::Context& context, const float* dy, int64_t lddy,
                                              const float* x, int64_t ldx, int64_t rows, int64_t n, int64_t k,
                                              const WeightGradientTarget& target);

}  // namespace lockstep::ops
