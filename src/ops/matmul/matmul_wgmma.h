// SPDX-License-Identifier: Apache-2.0
// wgmma.m64nNk16 bfloat16 -> binary32: one step of TC16 for every element of a 64 x N tile. N = 2 *
// kRegisters; thread t of the warpgroup holds d[4i .. 4i+3] = rows 16*(t/32) + (t%32)/4, columns 8i + 2*(t%4)
// and +1, then the same eight rows lower.
#pragma once

#include <cstdint>

#include "ops/matmul/matmul_hopper.h"

namespace lockstep::ops::hopper {

// An instruction names each of its registers, so its text is put together from lists of them. One line a
// width: operands %0, %1, ... in tens and the rest, then the numbers of the five that follow.
#define LOCKSTEP_TEN(t) \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define LOCKSTEP_FIRST_TEN "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
#define LOCKSTEP_TO_29 LOCKSTEP_FIRST_TEN LOCKSTEP_TEN(1) LOCKSTEP_TEN(2)
#define LOCKSTEP_TO_59 LOCKSTEP_TO_29 LOCKSTEP_TEN(3) LOCKSTEP_TEN(4) LOCKSTEP_TEN(5)
#define LOCKSTEP_TO_89 LOCKSTEP_TO_59 LOCKSTEP_TEN(6) LOCKSTEP_TEN(7) LOCKSTEP_TEN(8)
#define LOCKSTEP_TO_119 LOCKSTEP_TO_89 LOCKSTEP_TEN(9) LOCKSTEP_TEN(10) LOCKSTEP_TEN(11)

#define LOCKSTEP_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define LOCKSTEP_D8(i) LOCKSTEP_D4(i), LOCKSTEP_D4((i) + 4)
#define LOCKSTEP_D16(i) LOCKSTEP_D8(i), LOCKSTEP_D8((i) + 8)
#define LOCKSTEP_D32(i) LOCKSTEP_D16(i), LOCKSTEP_D16((i) + 16)
#define LOCKSTEP_D64(i) LOCKSTEP_D32(i), LOCKSTEP_D32((i) + 32)

#define LOCKSTEP_WGMMA(columns, registers, a_at, b_at, scale_at, outer_a_at, outer_b_at, ...)            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #scale_at                                            \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" registers "}, %" #a_at \
               ", %" #b_at ", p, 1, 1, %" #outer_a_at ", %" #outer_b_at ";\n}"                           \
               : __VA_ARGS__                                                                             \
               : "l"(a), "l"(b), "r"(scale), "n"(kOuterA ? 1 : 0), "n"(kOuterB ? 1 : 0))

// d = a b + (accumulate ? d : 0). kOuterA, kOuterB: the operand has k outermost.
template <bool kOuterA, bool kOuterB, int kRegisters>
__device__ __forceinline__ void wgmma(float (&d)[kRegisters], uint64_t a, uint64_t b, bool accumulate) {
  const int scale = accumulate ? 1 : 0;
  if constexpr (kRegisters == 4) {
    LOCKSTEP_WGMMA(8, "%0, %1, %2, %3", 4, 5, 6, 7, 8, LOCKSTEP_D4(0));
  } else if constexpr (kRegisters == 8) {
    LOCKSTEP_WGMMA(16, "%0, %1, %2, %3, %4, %5, %6, %7", 8, 9, 10, 11, 12, LOCKSTEP_D8(0));
  } else if constexpr (kRegisters == 16) {
    LOCKSTEP_WGMMA(32, LOCKSTEP_FIRST_TEN "%10, %11, %12, %13, %14, %15", 16, 17, 18, 19, 20,
                   LOCKSTEP_D16(0));
  } else if constexpr (kRegisters == 32) {
    LOCKSTEP_WGMMA(64, LOCKSTEP_TO_29 "%30, %31", 32, 33, 34, 35, 36, LOCKSTEP_D32(0));
  } else if constexpr (kRegisters == 64) {
    LOCKSTEP_WGMMA(128, LOCKSTEP_TO_59 "%60, %61, %62, %63", 64, 65, 66, 67, 68, LOCKSTEP_D64(0));
  } else if constexpr (kRegisters == 96) {
    LOCKSTEP_WGMMA(192, LOCKSTEP_TO_89 "%90, %91, %92, %93, %94, %95", 96, 97, 98, 99, 100, LOCKSTEP_D64(0),
                   LOCKSTEP_D32(64));
  } else if constexpr (kRegisters == 112) {
    LOCKSTEP_WGMMA(224, LOCKSTEP_TO_89 LOCKSTEP_TEN(9) LOCKSTEP_TEN(10) "%110, %111", 112, 113, 114, 115, 116,
                   LOCKSTEP_D64(0), LOCKSTEP_D32(64), LOCKSTEP_D16(96));
  } else if constexpr (kRegisters == 128) {
    LOCKSTEP_WGMMA(256, LOCKSTEP_TO_119 "%120, %121, %122, %123, %124, %125, %126, %127", 128, 129, 130, 131,
                   132, LOCKSTEP_D64(0), LOCKSTEP_D64(64));
  } else {
    static_assert(kRegisters < 0, "no wgmma of this width here");
  }
}

#undef LOCKSTEP_TEN
#undef LOCKSTEP_FIRST_TEN
#undef LOCKSTEP_TO_29
#undef LOCKSTEP_TO_59
#undef LOCKSTEP_TO_89
#undef LOCKSTEP_TO_119
#undef LOCKSTEP_D4
#undef LOCKSTEP_D8
#undef LOCKSTEP_D16
#undef LOCKSTEP_D32
#undef LOCKSTEP_D64
#undef LOCKSTEP_WGMMA

}  // namespace lockstep::ops::hopper
