// SPDX-License-Identifier: Apache-2.0
// wgmma.m64nNk16 of the widths that products of few rows use, both operands with k contiguous; the layout of
// the accumulators is that of matmul_wgmma.h.
#pragma once

#include <cstdint>

#include "ops/matmul/matmul_hopper.h"

namespace lockstep::ops::hopper {

// Ten operands of the instruction's text; four accumulators.
#define LOCKSTEP_TEN(t) \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define LOCKSTEP_FOUR(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define LOCKSTEP_SIXTEEN(i) \
  LOCKSTEP_FOUR(i), LOCKSTEP_FOUR((i) + 4), LOCKSTEP_FOUR((i) + 8), LOCKSTEP_FOUR((i) + 12)
// columns; text and list of the accumulators; numbers of the operands that follow them
#define LOCKSTEP_WGMMA(columns, text, list, a, b, scale)                                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #scale                                                \
               ", 0;\n"                                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" text "}, %" #a ", %" #b \
               ", p, 1, 1, 0, 0;\n}"                                                                      \
               : list                                                                                     \
               : "l"(a_at), "l"(b_at), "r"(accumulate ? 1 : 0))
#define LOCKSTEP_LIST(...) __VA_ARGS__

// d = a b + (accumulate ? d : 0), N = 2 * kRegisters.
template <int kRegisters>
__device__ __forceinline__ void wgmma_k_major(float (&d)[kRegisters], uint64_t a_at, uint64_t b_at,
                                              bool accumulate) {
  if constexpr (kRegisters == 16) {
    LOCKSTEP_WGMMA(32, LOCKSTEP_TEN() ", %10, %11, %12, %13, %14, %15", LOCKSTEP_LIST(LOCKSTEP_SIXTEEN(0)),
                   16, 17, 18);
  } else if constexpr (kRegisters == 20) {
    LOCKSTEP_WGMMA(40, LOCKSTEP_TEN() ", " LOCKSTEP_TEN(1),
                   LOCKSTEP_LIST(LOCKSTEP_SIXTEEN(0), LOCKSTEP_FOUR(16)), 20, 21, 22);
  } else if constexpr (kRegisters == 32) {
    LOCKSTEP_WGMMA(64, LOCKSTEP_TEN() ", " LOCKSTEP_TEN(1) ", " LOCKSTEP_TEN(2) ", %30, %31",
                   LOCKSTEP_LIST(LOCKSTEP_SIXTEEN(0), LOCKSTEP_SIXTEEN(16)), 32, 33, 34);
  } else if constexpr (kRegisters == 40) {
    LOCKSTEP_WGMMA(
        80, LOCKSTEP_TEN() ", " LOCKSTEP_TEN(1) ", " LOCKSTEP_TEN(2) ", " LOCKSTEP_TEN(3),
        LOCKSTEP_LIST(LOCKSTEP_SIXTEEN(0), LOCKSTEP_SIXTEEN(16), LOCKSTEP_FOUR(32), LOCKSTEP_FOUR(36)), 40,
        41, 42);
  } else if constexpr (kRegisters == 56) {
    LOCKSTEP_WGMMA(112,
                   LOCKSTEP_TEN() ", " LOCKSTEP_TEN(1) ", " LOCKSTEP_TEN(2) ", " LOCKSTEP_TEN(
                       3) ", " LOCKSTEP_TEN(4) ", %50, %51, %52, %53, %54, %55",
                   LOCKSTEP_LIST(LOCKSTEP_SIXTEEN(0), LOCKSTEP_SIXTEEN(16), LOCKSTEP_SIXTEEN(32),
                                 LOCKSTEP_FOUR(48), LOCKSTEP_FOUR(52)),
                   56, 57, 58);
  } else if constexpr (kRegisters == 76) {
    LOCKSTEP_WGMMA(
        152,
        LOCKSTEP_TEN() ", " LOCKSTEP_TEN(1) ", " LOCKSTEP_TEN(2) ", " LOCKSTEP_TEN(3) ", " LOCKSTEP_TEN(
            4) ", " LOCKSTEP_TEN(5) ", " LOCKSTEP_TEN(6) ", %70, %71, %72, %73, %74, %75",
        LOCKSTEP_LIST(LOCKSTEP_SIXTEEN(0), LOCKSTEP_SIXTEEN(16), LOCKSTEP_SIXTEEN(32), LOCKSTEP_SIXTEEN(48),
                      LOCKSTEP_FOUR(64), LOCKSTEP_FOUR(68), LOCKSTEP_FOUR(72)),
        76, 77, 78);
  } else {
    static_assert(kRegisters < 0, "no wgmma of this width here");
  }
}

#undef LOCKSTEP_LIST
#undef LOCKSTEP_WGMMA
#undef LOCKSTEP_SIXTEEN
#undef LOCKSTEP_FOUR
#undef LOCKSTEP_TEN

}  // namespace lockstep::ops::hopper
