// SPDX-License-Identifier: Apache-2.0
// Few tokens: 64 rows of W are the wgmma's M side, up to 64 tokens its N side. A unit of work is 64 rows of
// W, a group of tokens and one chunk of k (or all chunks, where there are units enough for all
// multiprocessors); of the blocks that share rows and tokens the last to arrive adds the chunk sums,
// ascending. The two runs of 32 rows of a unit lie where RoPE's pairs, or gate and up, lie in one unit.
#include "ops/matmul/matmul_decode.h"

#include <algorithm>

#include "core/check.h"
#include "device/cuda/launch.h"
#include "device/cuda/launch_early.h"
#include "ops/matmul/matmul_epilogue.h"
#include "ops/matmul/matmul_tensor_map.h"
#include "ops/matmul/matmul_wgmma.h"

namespace lockstep::ops {
namespace {

constexpr int kRows = 64;  // of W, a unit
constexpr int kRun = 32;
constexpr int kDepth = 64;
constexpr int kThreads = 160;  // a warpgroup that multiplies and a producer warp
constexpr int kSlab = 32;      // tokens whose results pass through shared memory together
constexpr int kSlabStride = kRows + 4;
constexpr int kMaxTokens = 64;

struct DecodeArguments {
  int tiles = 0;   // of kRows rows of W
  int blocks = 0;  // of k
  int chunk_blocks = 0;
  int tokens = 8;  // a group
  int groups = 1;  // of tokens
  int splits = 1;  // units a tile and group: 1 or the number of chunks
  int units = 0;
  MatmulOutput output = MatmulOutput::kFloat;
  float* sums = nullptr;         // [tile][group][split][kTokens / 8][128 threads][4]
  unsigned* arrivals = nullptr;  // [tile][group], zero between launches
  EpilogueArguments epilogue;
};

template <int kTokens_>
struct Decode {
  static constexpr int kTokens = kTokens_;
  static constexpr int kRegisters = kTokens / 2;
  static constexpr int kBytesW = kRows * 128;
  static constexpr int kStageBytes = kBytesW + kTokens * 128;
  static constexpr int kStages = kTokens == 8 ? 12 : kTokens == 16 ? 10 : kTokens == 32 ? 8 : 6;
  static constexpr int kSlabTokens = std::min(kTokens, kSlab);
  static constexpr int kSlabBytes = kSlabTokens * kSlabStride * 4;
  static constexpr int kSharedBytes = 1024 + kStages * kStageBytes + kSlabBytes + 16 * kStages + 16;
  static constexpr int kPerSm = 2;
};

// First row of each run of the tile.
struct Runs {
  int first, second;
};
__device__ __forceinline__ Runs runs_of(const DecodeArguments& p, int tile) {
  if (p.output == MatmulOutput::kSwiglu) return {tile * kRun, tile * kRun + p.epilogue.n};
  if (p.output == MatmulOutput::kRope && p.epilogue.head_size == 128) {
    const int first = tile / 2 * 128 + tile % 2 * kRun;
    return {first, first + 64};
  }
  return {tile * kRows, tile * kRows + kRun};
}

// The blocks of k of all units of a thread block, in order. Divisions are slow: once a unit, and only where
// needed.
struct Walk {
  int unit, block, end;
  int pair;  // tile and group
  Runs runs;
  int token;  // first of the group
  __device__ __forceinline__ void start(const DecodeArguments& p, int at) {
    unit = at;
    pair = p.splits == 1 ? unit : unit / p.splits;
    block = (unit - pair * p.splits) * p.chunk_blocks;
    end = p.splits == 1 ? p.blocks : min(p.blocks, block + p.chunk_blocks);
    const int tile = p.groups == 1 ? pair : pair / p.groups;
    token = (pair - tile * p.groups) * p.tokens;
    runs = runs_of(p, tile);
  }
  __device__ __forceinline__ bool valid(const DecodeArguments& p) const { return unit < p.units; }
  __device__ __forceinline__ void next(const DecodeArguments& p) {
    if (++block == end) start(p, unit + static_cast<int>(gridDim.x));
  }
};

template <class D>
__device__ __forceinline__ void copy_weights(const CUtensorMap& w, const DecodeArguments& p, const Walk& walk,
                                             uint32_t stage, uint32_t barrier) {
  hopper::barrier_expect(barrier, D::kStageBytes);
  hopper::copy_box(stage, &w, walk.block * kDepth, walk.runs.first, barrier);
  hopper::copy_box(stage + kRun * 128, &w, walk.block * kDepth, walk.runs.second, barrier);
}

// W does not depend on the launch before: its first copies start at once.
template <class D>
__device__ __forceinline__ void produce(const CUtensorMap& w, const CUtensorMap& x, const DecodeArguments& p,
                                        uint32_t stages, uint32_t full, uint32_t empty) {
  Walk walk;
  walk.start(p, blockIdx.x);
  Walk early = walk;
  int started = 0;
  for (; started < D::kStages && early.valid(p); ++started, early.next(p))
    copy_weights<D>(w, p, early, stages + started * D::kStageBytes, full + 8 * started);
  cuda::wait_for_launch_before();
  hopper::Ring<D::kStages> ring;
  for (int i = 0; walk.valid(p); ++i, walk.next(p), ring.next()) {
    const uint32_t stage = stages + ring.stage * D::kStageBytes;
    const uint32_t barrier = full + ring.stage * 8;
    if (i >= started) {
      hopper::barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
      copy_weights<D>(w, p, walk, stage, barrier);
    }
    hopper::copy_box(stage + D::kBytesW, &x, walk.block * kDepth, walk.token, barrier);
  }
}

template <class D, int kRegisters>
__device__ __forceinline__ void decode_chain(float (&acc)[kRegisters], int blocks,
                                             hopper::Ring<D::kStages>& ring, uint32_t stages, uint32_t full,
                                             uint32_t empty, int lane) {
  uint32_t before = 0;
  hopper::pin(acc);
  int block = 0;
  do {
    hopper::barrier_wait(full + ring.stage * 8, ring.parity);
    const uint32_t at = stages + ring.stage * D::kStageBytes;
    const uint64_t a = hopper::descriptor_k_major(at);
    const uint64_t b = hopper::descriptor_k_major(at + D::kBytesW);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      hopper::wgmma<false, false>(acc, a + step * 2, b + step * 2, block != 0 || step != 0);
    hopper::wgmma_commit();
    hopper::wgmma_wait<1>();
    if (block != 0 && lane == 0) hopper::barrier_arrive(empty + before * 8);
    before = ring.stage;
    ring.next();
  } while (++block < blocks);
  hopper::wgmma_wait<0>();
  hopper::pin(acc);
  if (lane == 0) hopper::barrier_arrive(empty + before * 8);
}

__device__ __forceinline__ void pack_eight(const float (&v)[8], uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
}

__device__ __forceinline__ void store_float_eight(const EpilogueArguments& e, int token, int column,
                                                  const float (&v)[8]) {
  float* out = static_cast<float*>(e.out) + static_cast<int64_t>(token) * e.ld_out + column;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    if (column + i + 1 < e.n) {
      *reinterpret_cast<float2*>(out + i) = make_float2(v[i], v[i + 1]);
    } else if (column + i < e.n) {
      out[i] = v[i];
    }
  }
}

__device__ __forceinline__ void store_bf16_eight(const EpilogueArguments& e, bool residual, int token,
                                                 int column, float (&v)[8]) {
  uint32_t words[4];
  if (residual) {
    load_eight(e.residual + static_cast<int64_t>(token) * e.ld_residual, column, e.n, words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = low_bf16(words[i]) + v[2 * i];
      v[2 * i + 1] = high_bf16(words[i]) + v[2 * i + 1];
    }
  }
  pack_eight(v, words);
  store_eight(static_cast<Bf16*>(e.out) + static_cast<int64_t>(token) * e.ld_out, column, e.n, words);
}

// Eight columns of each run, of one token.
__device__ __forceinline__ void store_runs(const DecodeArguments& p, int token, int first, int second,
                                           float (&a)[8], float (&b)[8]) {
  const EpilogueArguments& e = p.epilogue;
  if (p.output == MatmulOutput::kSwiglu) {
    uint32_t gate[4], up[4], act[4];
    pack_eight(a, gate);
    pack_eight(b, up);
    swiglu_words(gate, up, act);
    store_eight(e.act + static_cast<int64_t>(token) * e.ld_act, first, e.n, act);
    if (e.out != nullptr) {
      Bf16* out = static_cast<Bf16*>(e.out) + static_cast<int64_t>(token) * e.ld_out;
      store_eight(out, first, e.n, gate);
      store_eight(out + e.n, first, e.n, up);
    }
    return;
  }
  if (e.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i < e.n) a[i] = a[i] + numerics::bfloat16_to_float(e.bias[first + i]);
      if (second + i < e.n) b[i] = b[i] + numerics::bfloat16_to_float(e.bias[second + i]);
    }
  }
  if (p.output == MatmulOutput::kFloat) {
    store_float_eight(e, token, first, a);
    store_float_eight(e, token, second, b);
    return;
  }
  if (p.output == MatmulOutput::kRope && first < e.rope_columns) {
    const int64_t at = static_cast<int64_t>(e.positions[token]) * (e.head_size / 2) + first % e.head_size;
#pragma unroll
    for (int i = 0; i < 8; ++i) rotate(a[i], b[i], e.cos[at + i], e.sin[at + i]);
  }
  const bool residual = p.output == MatmulOutput::kResidual;
  store_bf16_eight(e, residual, token, first, a);
  store_bf16_eight(e, residual, token, second, b);
}

// Turns the unit round through shared memory, kSlabTokens tokens at a time, and stores
// it.
template <class D, int kRegisters>
__device__ __forceinline__ void store_unit(const DecodeArguments& p, const Walk& walk,
                                           const float (&acc)[kRegisters], float* slab, int thread) {
  const int first = walk.token;
  const int lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int from = 0; from < D::kTokens; from += D::kSlabTokens) {
    if (first + from >= p.epilogue.m) break;
    hopper::sync_threads(1, 128);
#pragma unroll
    for (int i = 0; i < D::kSlabTokens / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        slab[(8 * i + 2 * (lane % 4) + j % 2) * kSlabStride + row + 8 * (j / 2)] = acc[from / 2 + 4 * i + j];
    }
    hopper::sync_threads(1, 128);
    const int token = thread / 4;
    if (token < D::kSlabTokens && first + from + token < p.epilogue.m) {
      const int q = thread % 4 * 8;
      float a[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        a[i] = slab[token * kSlabStride + q + i];
        b[i] = slab[token * kSlabStride + kRun + q + i];
      }
      store_runs(p, first + from + token, walk.runs.first + q, walk.runs.second + q, a, b);
    }
  }
}

// Keeps this unit's chunk sum; true for the last of tile and group to arrive, which then has all sums added
// in acc.
template <class D, int kRegisters>
__device__ __forceinline__ bool fold_unit(const DecodeArguments& p, const Walk& walk,
                                          float (&acc)[kRegisters], unsigned* flag, int thread) {
  const int pair = walk.pair;
  float4* sums =
      reinterpret_cast<float4*>(p.sums) + static_cast<int64_t>(pair) * p.splits * 32 * kRegisters + thread;
  float4* mine = sums + static_cast<int64_t>(walk.unit - pair * p.splits) * 32 * kRegisters;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 4)
    mine[i * 32] = make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
  __threadfence();
  hopper::sync_threads(1, 128);
  if (thread == 0) *flag = atomicAdd(p.arrivals + pair, 1U);
  hopper::sync_threads(1, 128);
  if (*flag != static_cast<unsigned>(p.splits - 1)) return false;
  __threadfence();
  if (thread == 0) p.arrivals[pair] = 0;
#pragma unroll
  for (int i = 0; i < kRegisters; i += 4) {
    float4 sum = __ldcg(sums + i * 32);
    for (int split = 1; split < p.splits; ++split) {
      const float4 next = __ldcg(sums + (static_cast<int64_t>(split) * kRegisters + i) * 32);
      sum.x = sum.x + next.x;
      sum.y = sum.y + next.y;
      sum.z = sum.z + next.z;
      sum.w = sum.w + next.w;
    }
    acc[i] = sum.x;
    acc[i + 1] = sum.y;
    acc[i + 2] = sum.z;
    acc[i + 3] = sum.w;
  }
  return true;
}

template <class D>
__device__ __forceinline__ void consume(const DecodeArguments& p, uint32_t stages, uint32_t full,
                                        uint32_t empty, float* slab, unsigned* flag) {
  constexpr int kRegisters = D::kRegisters;
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  cuda::wait_for_launch_before();
  hopper::Ring<D::kStages> ring;
  float acc[kRegisters];
  Walk walk;
  for (walk.start(p, blockIdx.x); walk.valid(p); walk.start(p, walk.unit + static_cast<int>(gridDim.x))) {
    const int blocks = walk.end - walk.block;
    if (p.splits > 1) {
      decode_chain<D>(acc, blocks, ring, stages, full, empty, lane);
      if (!fold_unit<D>(p, walk, acc, flag, thread)) continue;
    } else {
      decode_chain<D>(acc, min(blocks, p.chunk_blocks), ring, stages, full, empty, lane);
      for (int begin = p.chunk_blocks; begin < blocks; begin += p.chunk_blocks) {
        float next[kRegisters];
        decode_chain<D>(next, min(blocks - begin, p.chunk_blocks), ring, stages, full, empty, lane);
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) acc[i] = acc[i] + next[i];
      }
    }
    store_unit<D>(p, walk, acc, slab, thread);
  }
}

template <class D>
__global__ void __launch_bounds__(kThreads, D::kPerSm)
    decode_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
                  const __grid_constant__ DecodeArguments p) {
  extern __shared__ uint8_t shared[];
  const uint32_t base = hopper::shared_address(shared);
  const uint32_t stages = (base + 1023U) & ~1023U;
  uint8_t* behind = shared + (stages - base) + D::kStages * D::kStageBytes;
  auto* slab = reinterpret_cast<float*>(behind);
  const uint32_t full = hopper::shared_address(behind + D::kSlabBytes);
  const uint32_t empty = full + 8 * D::kStages;
  auto* flag = reinterpret_cast<unsigned*>(behind + D::kSlabBytes + 16 * D::kStages);
  if (threadIdx.x == 128) {
    for (int i = 0; i < D::kStages; ++i) {
      hopper::barrier_init(full + 8 * i, 1);
      hopper::barrier_init(empty + 8 * i, 4);
    }
    hopper::barrier_init_fence();
  }
  __syncthreads();
  cuda::let_next_launch_start();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) produce<D>(w, x, p, stages, full, empty);
  } else {
    consume<D>(p, stages, full, empty, slab, flag);
  }
}

int64_t tiles_of(int64_t n) {
  return (n + kRows - 1) / kRows;  // of gate and up too: runs of 32 of each
}

// How a shape is cut: tokens a group and units of k. Smaller groups read W again, from the L2, and use more
// multiprocessors.
struct Cut {
  int tokens;
  int64_t groups, splits;
};
Cut cut_of(const cuda::Context& context, int64_t m, int64_t n, int64_t k, int64_t chunk) {
  const int64_t tiles = tiles_of(n);
  const int64_t most = 2 * context.sms();
  Cut cut{8, 1, tiles >= most ? 1 : (k + chunk - 1) / chunk};
  while (cut.tokens < std::min<int64_t>(m, kMaxTokens)) cut.tokens *= 2;
  while (cut.tokens > 16 && tiles * cut.splits * ((m + cut.tokens / 2 - 1) / (cut.tokens / 2)) <= most)
    cut.tokens /= 2;
  cut.groups = (m + cut.tokens - 1) / cut.tokens;
  return cut;
}

template <int kTokens>
void launch(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w, int64_t m, int64_t n,
            int64_t k, const DecodeArguments& p) {
  using D = Decode<kTokens>;
  cuda::allow_shared<decode_kernel<D>>(D::kSharedBytes, "a decode product");
  const CUtensorMap map_w = tensor_map(w, n, k, k, kRun);
  const CUtensorMap map_x = tensor_map(x, m, k, ldx, kTokens);
  cuda::launch_early(context, "launching a decode product", decode_kernel<D>,
                     dim3(static_cast<unsigned>(std::min(p.units, context.sms() * D::kPerSm))), kThreads,
                     D::kSharedBytes, map_w, map_x, p);
}

}  // namespace

bool matmul_decodes(const cuda::Context& context, int64_t m, int64_t n) {
  const int64_t tiles = tiles_of(n);
  return m <= kMaxTokens || (m <= 2 * kMaxTokens && tiles < 2 * context.sms()) ||
         (m <= kMatmulDecodeRows && tiles < context.sms());
}

int64_t matmul_decode_bf16_scratch(const cuda::Context& context, int64_t m, int64_t n, int64_t k,
                                   int64_t chunk) {
  const Cut cut = cut_of(context, m, n, k, chunk);
  return cut.splits == 1 ? 0 : tiles_of(n) * cut.groups * cut.splits * cut.tokens * kRows * 4;
}

void matmul_decode_bf16_cuda(const cuda::Context& context, const Bf16* x, int64_t ldx, const Bf16* w,
                             int64_t m, int64_t n, int64_t k, const MatmulForwardBf16& forward) {
  const Cut cut = cut_of(context, m, n, k, forward.chunk);
  DecodeArguments p;
  p.output = forward.output;
  p.epilogue = epilogue_arguments(forward, m, n);
  p.tiles = static_cast<int>(tiles_of(n));
  p.blocks = static_cast<int>((k + kDepth - 1) / kDepth);
  p.chunk_blocks = static_cast<int>(forward.chunk / kDepth);
  p.groups = static_cast<int>(cut.groups);
  p.splits = static_cast<int>(cut.splits);
  p.tokens = cut.tokens;
  p.units = p.tiles * p.groups * p.splits;
  LOCKSTEP_CHECK(tiles_of(n) * cut.groups <= cuda::Context::kCounters && m <= kMatmulDecodeRows);
  if (p.splits > 1) {
    p.sums =
        static_cast<float*>(context.scratch(matmul_decode_bf16_scratch(context, m, n, k, forward.chunk)));
    p.arrivals = context.counters();
  }
  switch (cut.tokens) {
    case 8:
      return launch<8>(context, x, ldx, w, m, n, k, p);
    case 16:
      return launch<16>(context, x, ldx, w, m, n, k, p);
    case 32:
      return launch<32>(context, x, ldx, w, m, n, k, p);
    default:
      return launch<64>(context, x, ldx, w, m, n, k, p);
  }
}

}  // namespace lockstep::ops
