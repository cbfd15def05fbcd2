// SPDX-License-Identifier: Apache-2.0
// A warp takes a group of blocks: its threads share the words of a block, thread i then mixes block i of the
// group, and the group's sum is added to the tensor's with integer atomics.
#include <algorithm>

#include "device/cuda/launch.h"
#include "numerics/digest.h"
#include "ops/digest/digest_cuda.h"
#include "ops/digest/digest_group.h"

namespace lockstep::ops {
namespace {

using numerics::Digest128;
using numerics::kDigestWords;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlocksPerSm = 6;
constexpr int kKeys = kDigestWords + numerics::kDigestKeyOffset;
constexpr int kLoads = kDigestWords / 64;  // of two words a thread
static_assert(numerics::kDigestKeyOffset % 2 == 0);

struct TwoWords {
  uint64_t x, y;
};

// Word `i` of a block whose bytes [0, left) exist.
__device__ __noinline__ uint64_t word_at(const uint8_t* block, int64_t left, int i) {
  uint64_t word = 0;
  for (int byte = 0; byte < 8; ++byte) {
    const int64_t at = static_cast<int64_t>(i) * 8 + byte;
    if (at < left) word |= static_cast<uint64_t>(block[at]) << (8 * byte);
  }
  return word;
}

__device__ __forceinline__ uint64_t warp_sum(uint64_t x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, width);
  return x;
}

// A thread's words of one block.
struct BlockWords {
  TwoWords two[kLoads];
};
__device__ __forceinline__ BlockWords load_block(const uint8_t* block, int64_t left, bool aligned) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  BlockWords words;
  if (aligned && left >= numerics::kDigestBlockBytes) {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const ulonglong2 both = __ldcs(reinterpret_cast<const ulonglong2*>(block) + k * 32 + lane);
      words.two[k] = {both.x, both.y};
    }
  } else {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int i = k * 64 + lane * 2;
      words.two[k] = {word_at(block, left, i), word_at(block, left, i + 1)};
    }
  }
  return words;
}

// The two lanes of one block, in every thread.
__device__ __forceinline__ Digest128 block_lanes(const BlockWords& words, const uint64_t* keys) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  Digest128 sum;
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    const uint64_t* key = keys + k * 64 + lane * 2;
    const TwoWords two = words.two[k];
    sum.lo += numerics::digest_product(two.x, key[0]) + numerics::digest_product(two.y, key[1]);
    key += numerics::kDigestKeyOffset;
    sum.hi += numerics::digest_product(two.x, key[0]) + numerics::digest_product(two.y, key[1]);
  }
  return {warp_sum(sum.lo), warp_sum(sum.hi)};
}

// *to += x mod 2^128. Of all adds to one sum exactly those that wrap its low half carry.
__device__ __forceinline__ void atomic_add(Digest128* to, Digest128 x) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long*>(&to->lo), x.lo);
  const uint64_t carry = before + x.lo < before ? 1 : 0;
  atomicAdd(reinterpret_cast<unsigned long long*>(&to->hi), x.hi + carry);
}

__global__ void __launch_bounds__(kThreads, 2)
    add_groups(const DigestSlice* __restrict__ slices, int n, int64_t groups, Digest128* __restrict__ sums) {
  __shared__ alignas(16) uint64_t keys[kKeys];
  for (int i = static_cast<int>(threadIdx.x); i < kKeys; i += kThreads) keys[i] = numerics::digest_key(i);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) & 31;
  int s = 0;  // the last tensor that starts at or before the group; empty ones share their successor's start
  for (int64_t group = static_cast<int64_t>(blockIdx.x) * kWarps + (threadIdx.x >> 5); group < groups;
       group += static_cast<int64_t>(gridDim.x) * kWarps) {
    while (s + 1 < n && slices[s + 1].first_group <= group) ++s;
    const DigestSlice slice = slices[s];
    const int64_t first_block = (group - slice.first_group) * kDigestGroupBlocks;
    const bool aligned = reinterpret_cast<uintptr_t>(slice.data) % 16 == 0;
    const int64_t left = slice.bytes - first_block * numerics::kDigestBlockBytes;
    const auto* bytes = static_cast<const uint8_t*>(slice.data) + first_block * numerics::kDigestBlockBytes;
    Digest128 mine;
    bool has_block = false;
    BlockWords next = load_block(bytes, left, aligned);
#pragma unroll 2
    for (int b = 0; b < kDigestGroupBlocks; ++b) {
      const int64_t at = b * numerics::kDigestBlockBytes;
      if (at >= left) break;
      const BlockWords words = next;
      const int64_t after = at + numerics::kDigestBlockBytes;
      // The next block is on its way while this one is summed.
      if (b + 1 < kDigestGroupBlocks && after < left) next = load_block(bytes + after, left - after, aligned);
      const Digest128 lanes = block_lanes(words, keys);
      if (lane == b) {
        mine = lanes;
        has_block = true;
      }
    }
    Digest128 value;
    if (has_block) value = numerics::digest_mix(mine, static_cast<uint64_t>(first_block + lane));
#pragma unroll
    for (int width = 1; width < kDigestGroupBlocks; width *= 2) {
      const Digest128 other = {__shfl_xor_sync(0xFFFFFFFFU, value.lo, width),
                               __shfl_xor_sync(0xFFFFFFFFU, value.hi, width)};
      value = numerics::digest_add(value, other);
    }
    if (lane == 0) atomic_add(sums + s, value);
  }
}

__global__ void finish(const DigestSlice* __restrict__ slices, int n, Digest128* __restrict__ sums) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) sums[i] = numerics::digest_finish(sums[i], static_cast<uint64_t>(slices[i].bytes));
}

}  // namespace

void digest_tensors_cuda(const cuda::Context& context, const DigestSlice* slices, int64_t n, int64_t groups,
                         Digest128* digests) {
  if (n == 0) return;
  cuda::check(cudaMemsetAsync(digests, 0, static_cast<size_t>(n) * sizeof(Digest128), context.stream()),
              "clearing digests");
  if (groups > 0) {
    const unsigned blocks =
        std::min(cuda::blocks_for(groups, kWarps), static_cast<unsigned>(context.sms() * kBlocksPerSm));
    add_groups<<<blocks, kThreads, 0, context.stream()>>>(slices, static_cast<int>(n), groups, digests);
    cuda::check_launch("digests of tensors");
  }
  finish<<<cuda::blocks_for(n, kThreads), kThreads, 0, context.stream()>>>(slices, static_cast<int>(n),
                                                                           digests);
  cuda::check_launch("digests of tensors, last step");
}

}  // namespace lockstep::ops
