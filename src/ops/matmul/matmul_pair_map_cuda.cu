// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_pair_map.h"

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <mutex>

#include "device/cuda/encode_tiled.h"
#include "device/cuda/error.h"
#include "ops/matmul/matmul_tensor_map.h"

namespace lockstep::ops {
namespace {

CUtensorMap encode(const numerics::Bf16* data, int64_t rows, int64_t columns, int64_t half, int box_rows) {
  static const cuda::EncodeTiled function = cuda::encode_tiled();
  CUtensorMap map{};
  const auto row_bytes = static_cast<cuuint64_t>(columns) * sizeof(numerics::Bf16);
  const auto run = static_cast<cuuint64_t>(half > 0 ? half : rows);
  const cuuint64_t both = half > 0 ? 2 : 1;
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(columns), both, run,
                               static_cast<cuuint64_t>(rows) / (run * both)};
  const cuuint64_t strides[3] = {run * row_bytes, row_bytes, both * run * row_bytes};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(both), static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult code =
      function(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<numerics::Bf16*>(data), sizes, strides,
               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS)
    throw cuda::Error(cudaErrorInvalidValue, "describing pairs of rows to the copy engine");
  return map;
}

}  // namespace

CUtensorMap pair_map(const numerics::Bf16* data, int64_t rows, int64_t columns, int64_t half, int box_rows) {
  static std::mutex mutex;
  static std::map<std::array<int64_t, 5>, CUtensorMap> known;
  const std::array<int64_t, 5> key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)), rows, columns,
                                      half, box_rows};
  const std::scoped_lock lock(mutex);
  if (known.size() > 16384) known.clear();  // addresses that came and went
  const auto at = known.find(key);
  if (at != known.end()) return at->second;
  return known.emplace(key, encode(data, rows, columns, half, box_rows)).first->second;
}

}  // namespace lockstep::ops
