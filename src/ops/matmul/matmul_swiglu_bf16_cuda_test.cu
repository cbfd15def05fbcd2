// SPDX-License-Identifier: Apache-2.0
// The two fast ways of an epilogue's SwiGLU against the definition's operations, for every pair of a gate and
// an up: 2^32.
#include <gtest/gtest.h>

#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "needs_gpu.h"
#include "ops/matmul/matmul_decode_swiglu.h"

namespace lockstep::ops {
namespace {

struct Difference {
  unsigned long long count = 0;
  uint32_t gate = 0, up = 0;  // of one of them
};

enum class Way { kProduct, kDecode };

__device__ __forceinline__ bool is_nan(uint32_t bf16) {
  return (bf16 & 0x7FFFU) > 0x7F80U;
}

// Which gates stand together, for a group of eight is decided as one: a gate alone (so that no other sends it
// the exact way), a gate and its negative, neighbours.
enum class Together { kAlone, kSigns, kNeighbours };

__device__ __forceinline__ uint32_t gate_at(Together together, uint32_t number, uint32_t i) {
  if (together == Together::kNeighbours) return (number & ~7U) | ((number + i) & 7U);
  return together == Together::kSigns && i % 2 == 1 ? number ^ 0x8000U : number;
}

// Block b has ups 256 * b to 256 * b + 255, its threads all gates.
template <Way kWay>
__global__ void compare_kernel(Together together, Difference* difference) {
  const uint32_t step = together == Together::kNeighbours ? 8 : 1;
  for (uint32_t number = threadIdx.x * step; number < 65536; number += blockDim.x * step) {
    uint32_t gate[4];
    for (uint32_t i = 0; i < 4; ++i)
      gate[i] = gate_at(together, number, 2 * i) | (gate_at(together, number, 2 * i + 1) << 16);
    for (uint32_t u = 0; u < 256; ++u) {
      uint32_t up[4], act[4], want[4];
      for (uint32_t i = 0; i < 4; ++i) up[i] = (blockIdx.x * 256 + u) * 0x10001U;
      if (kWay == Way::kProduct) {
        swiglu_words(gate, up, act);
      } else {
        swiglu_eight(gate, up, act);
      }
      swiglu_words_exact(gate, up, want);
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t got = (act[i / 2] >> (16 * (i % 2))) & 0xFFFFU;
        const uint32_t expected = (want[i / 2] >> (16 * (i % 2))) & 0xFFFFU;
        if (got == expected || (is_nan(got) && is_nan(expected))) continue;
        if (atomicAdd(&difference->count, 1ULL) == 0) {
          difference->gate = (gate[i / 2] >> (16 * (i % 2))) & 0xFFFFU;
          difference->up = up[0] & 0xFFFFU;
        }
      }
    }
  }
}

template <Way kWay>
void check(Together together) {
  const cuda::Context context(0);
  cuda::DeviceBuffer<Difference> device(1);
  Difference difference;
  device.upload(context, &difference, 1);
  compare_kernel<kWay><<<256, 512, 0, context.stream()>>>(together, device.data());
  cuda::check(cudaGetLastError(), "comparing SwiGLU");
  device.download(context, &difference, 1);
  context.synchronize();
  EXPECT_EQ(difference.count, 0U) << std::hex << "gate " << difference.gate << " up " << difference.up;
}

TEST(MatmulSwigluBf16Cuda, ProductsWayOfAllPairs) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const Together together : {Together::kAlone, Together::kSigns, Together::kNeighbours})
    check<Way::kProduct>(together);
}

TEST(MatmulSwigluBf16Cuda, DecodesWayOfAllPairs) {
  LOCKSTEP_NEEDS_HOPPER();
  for (const Together together : {Together::kAlone, Together::kSigns, Together::kNeighbours})
    check<Way::kDecode>(together);
}

}  // namespace
}  // namespace lockstep::ops
