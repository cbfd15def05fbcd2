// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_tensor_map.h"

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <mutex>

#include "core/check.h"
#include "device/cuda/encode_tiled.h"
#include "device/cuda/error.h"

namespace lockstep::ops {
namespace {

struct Box {
  bool is_float;
  int rows, columns;
};

CUtensorMap encode(const void* data, int64_t rows, int64_t columns, int64_t ld, const Box& box) {
  static const cuda::EncodeTiled function = cuda::encode_tiled();
  const int element = box.is_float ? 4 : 2;
  CUtensorMap map{};
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(ld * element)};
  const cuuint32_t sides[2] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult code =
      function(&map, box.is_float ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
               const_cast<void*>(data), sizes, strides, sides, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               box.columns * element == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS)
    throw cuda::Error(cudaErrorInvalidValue, "describing a matrix to the copy engine (alignment or stride)");
  return map;
}

CUtensorMap known_map(const void* data, int64_t rows, int64_t columns, int64_t ld, const Box& box) {
  static std::mutex mutex;
  static std::map<std::array<int64_t, 7>, CUtensorMap> known;
  const std::array<int64_t, 7> key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)),
                                      rows,
                                      columns,
                                      ld,
                                      box.is_float ? 1 : 0,
                                      box.rows,
                                      box.columns};
  const std::scoped_lock lock(mutex);
  if (known.size() > 16384) known.clear();  // addresses that came and went
  const auto at = known.find(key);
  if (at != known.end()) return at->second;
  return known.emplace(key, encode(data, rows, columns, ld, box)).first->second;
}

}  // namespace

CUtensorMap tensor_map(const numerics::Bf16* data, int64_t rows, int64_t columns, int64_t ld, int box_rows) {
  return known_map(data, rows, columns, ld, {false, box_rows, 64});
}

CUtensorMap result_map(const void* data, bool is_float, int64_t rows, int64_t columns, int64_t ld,
                       int box_columns) {
  return known_map(data, rows, columns, ld, {is_float, 64, box_columns});
}

}  // namespace lockstep::ops
