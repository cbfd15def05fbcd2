// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul_blocked.h"

#include <limits>

namespace lockstep::ops {

const MatmulKernels& matmul_kernels(const cpu::Context& context) {
  const MatmulKernels* kernels = nullptr;
  if (context.isa() == cpu::Isa::kAvx512) kernels = matmul_kernels_avx512();
  if (context.isa() == cpu::Isa::kAvx2) kernels = matmul_kernels_avx2();
  return kernels == nullptr ? matmul_kernels_portable() : *kernels;
}

std::vector<Segment> cut_chain(int64_t position, int64_t steps, int64_t chunk, int64_t longest) {
  std::vector<Segment> segments;
  int64_t begin = 0;
  while (begin < steps) {
    const int64_t in_chunk = (position + begin) % chunk;
    const int64_t end = std::min(steps, begin + chunk - in_chunk);
    const int64_t pieces = (end - begin + longest - 1) / longest;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t from = begin + (end - begin) * piece / pieces;
      const int64_t to = begin + (end - begin) * (piece + 1) / pieces;
      segments.push_back({from, to - from, piece == 0 && in_chunk == 0 && position + begin > 0});
    }
    begin = end;
  }
  return segments;
}

std::vector<BlockRange> divide(int64_t rows, int64_t panels, int64_t tile_rows, int threads, double b_cost) {
  const auto parts = [](int64_t of, int64_t size) { return (of + size - 1) / size; };
  const int64_t tiles = parts(rows, tile_rows);
  const int64_t most = 4 * static_cast<int64_t>(threads);
  int64_t best_rows = 1;
  int64_t best_panels = 1;
  double best = std::numeric_limits<double>::max();
  for (int64_t across = 1; across <= std::min(most, tiles); ++across) {
    for (int64_t along = 1; along <= std::min(most / across, panels); ++along) {
      const double task_tiles = static_cast<double>(parts(tiles, across));
      const double task_panels = static_cast<double>(parts(panels, along));
      const double rounds = static_cast<double>(parts(across * along, threads));
      const double cost = rounds * (task_tiles * task_panels + 0.4 * task_tiles + b_cost * task_panels + 0.1);
      if (cost >= best) continue;
      best = cost;
      best_rows = across;
      best_panels = along;
    }
  }
  std::vector<BlockRange> tasks;
  for (int64_t i = 0; i < best_rows; ++i) {
    const int64_t row_begin = std::min(rows, tiles * i / best_rows * tile_rows);
    const int64_t row_end = std::min(rows, tiles * (i + 1) / best_rows * tile_rows);
    for (int64_t j = 0; j < best_panels; ++j)
      tasks.push_back({row_begin, row_end, panels * j / best_panels, panels * (j + 1) / best_panels});
  }
  return tasks;
}

MatmulScratch& matmul_scratch() {
  thread_local MatmulScratch scratch;
  return scratch;
}

}  // namespace lockstep::ops
