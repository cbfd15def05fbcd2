// SPDX-License-Identifier: Apache-2.0
// Copies of operands in the order in which the kernels read them. No arithmetic.
#pragma once

#include <cstdint>

namespace lockstep::ops {

// out[t][r] = in[r][t] for r in [0, rows), t in [0, steps); rows of in lie ld apart, out's are `width` wide
// and +0 in columns from `rows` on.
void pack_transposed(const float* in, int64_t ld, int64_t rows, int64_t steps, int64_t width, float* out);

// Splits rows [steps][columns] of a matrix into panels of `width` columns, each [steps][width], panel_stride
// elements apart; columns past the end are +0.
void pack_panels(const float* in, int64_t ld, int64_t steps, int64_t columns, int64_t width,
                 int64_t panel_stride, float* out);

// Rows [begins[i], begins[i + 1]) of in as [steps][rows], one i after another.
void pack_rows(const float* in, int64_t ld, int64_t steps, const int64_t* begins, int64_t count, float* out);

// Columns [begins[i], begins[i + 1]) of rows [0, steps) as [steps][columns], one i after another; at most
// kMaxTileRows columns each.
void pack_narrow(const float* in, int64_t ld, int64_t steps, const int64_t* begins, int64_t count,
                 float* out);

}  // namespace lockstep::ops
