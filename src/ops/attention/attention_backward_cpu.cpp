// SPDX-License-Identifier: Apache-2.0
// Tasks: (sample, key/value head). Blocks of 64 keys ascending; for each, the group's heads ascending and
// their tiles of 64 queries ascending: the order of every chain at once, without a lock.
#include <algorithm>
#include <cstring>

#include "core/buffer.h"
#include "numerics/reduce.h"
#include "ops/attention/attention_scale.h"
#include "ops/attention/attention_tasks.h"

namespace lockstep::ops {
namespace {

using numerics::kKeyBlock;
using numerics::kTokenPad;

struct Workspace {
  Buffer<float> row_sums, k_columns, v_columns, dk_total, dv_total;
  Buffer<float> p{kKeyBlock * kKeyBlock};
  Buffer<float> ds{kKeyBlock * kKeyBlock};
};

// Rows [0, keys) of a matrix with row stride ld to [d][64]; columns past the last row are +0.
void pack_columns(const float* rows, int64_t ld, int64_t keys, int64_t d, float* columns) {
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j < keys; ++j) columns[i * kKeyBlock + j] = rows[j * ld + i];
    for (int64_t j = keys; j < kKeyBlock; ++j) columns[i * kKeyBlock + j] = 0.0F;
  }
}

void zero_rows(float* x, int64_t ld, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row)
    std::memset(x + row * ld, 0, static_cast<size_t>(columns) * sizeof(float));
}

void scale_rows(float scale, int64_t ld, int64_t rows, int64_t columns, float* x) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) x[row * ld + i] = x[row * ld + i] * scale;
  }
}

// total + x into x: the last chunk.
void add_total(const float* total, int64_t ld, int64_t rows, int64_t d, float* x) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < d; ++i) x[row * ld + i] = total[row * d + i] + x[row * ld + i];
  }
}

// x into total, and x to +0 (no +0 is added to the first chunk: it could turn -0 into +0).
void move_chunk(bool first, int64_t ld, int64_t rows, int64_t d, float* x, float* total) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < d; ++i) {
      float* sum = total + row * d + i;
      *sum = first ? x[row * ld + i] : *sum + x[row * ld + i];
      x[row * ld + i] = 0.0F;
    }
  }
}

void backward_task(BackwardTile tile, int64_t group, const float* out, Workspace* work, BackwardTask* task) {
  const int64_t d = task->head_size;
  work->row_sums.ensure(group * task->rows);
  work->k_columns.ensure(d * kKeyBlock);
  work->v_columns.ensure(d * kKeyBlock);
  work->dk_total.ensure(d * kKeyBlock);
  work->dv_total.ensure(d * kKeyBlock);
  task->row_sums = work->row_sums.data();
  task->k_columns = work->k_columns.data();
  task->v_columns = work->v_columns.data();
  task->p = work->p.data();
  task->ds = work->ds.data();
  task->dk_total = work->dk_total.data();
  task->dv_total = work->dv_total.data();

  for (int64_t g = 0; g < group; ++g) {
    for (int64_t row = 0; row < task->rows; ++row) {
      const int64_t at = row * task->ld_out + g * d;
      task->row_sums[g * task->rows + row] = numerics::row_dot(task->d_out + at, out + at, d);
    }
  }
  zero_rows(task->dq, task->ld, task->rows, group * d);
  zero_rows(task->dk, task->ld, task->rows, d);
  zero_rows(task->dv, task->ld, task->rows, d);
  const float scale = attention_gradient_scale(d);
  for (int64_t key = 0; key < task->rows; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, task->rows - key);
    pack_columns(task->k + key * task->ld, task->ld, keys, d, task->k_columns);
    pack_columns(task->v + key * task->ld, task->ld, keys, d, task->v_columns);
    for (int64_t g = 0; g < group; ++g) {
      for (int64_t query = key; query < task->rows; query += kKeyBlock)
        tile(*task, g, query, std::min(kKeyBlock, task->rows - query), key, keys);
    }
    const int64_t last_step = (group - 1) * (task->padded_rows - key) + task->rows - 1 - key;
    if (last_step >= numerics::kGradientChunk) {
      add_total(task->dk_total, task->ld, keys, d, task->dk + key * task->ld);
      add_total(task->dv_total, task->ld, keys, d, task->dv + key * task->ld);
    }
    scale_rows(scale, task->ld, keys, d, task->dk + key * task->ld);
  }
  scale_rows(scale, task->ld, task->rows, group * d, task->dq);
}

}  // namespace

void end_chunk(const BackwardTask& task, int64_t key, int64_t keys, int64_t step) {
  const bool first = step == numerics::kGradientChunk;
  move_chunk(first, task.ld, keys, task.head_size, task.dk + key * task.ld, task.dk_total);
  move_chunk(first, task.ld, keys, task.head_size, task.dv + key * task.ld, task.dv_total);
}

void attention_backward_cpu(const cpu::Context& context, const AttentionShape& shape, const float* qkv,
                            const float* out, const float* d_out, const float* max_exponent,
                            const float* inverse_sum, const AttentionSample* samples, int64_t n_samples,
                            float* d_qkv) {
  const BackwardTile tile = attention_kernels(context.isa()).backward_tile;
  const int64_t d = shape.head_size;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t ld = (shape.heads + 2 * shape.kv_heads) * d;
  const int64_t ld_out = shape.heads * d;
  context.parallel_for(n_samples * shape.kv_heads, [&](int64_t i) {
    thread_local Workspace work;
    const int64_t kv = i % shape.kv_heads;
    const int64_t begin = samples[i / shape.kv_heads].begin;
    const int64_t rows = samples[i / shape.kv_heads].end - begin;
    const int64_t q_column = kv * group * d;
    const int64_t k_column = (shape.heads + kv) * d;
    const int64_t v_column = k_column + shape.kv_heads * d;
    BackwardTask task{};
    task.head_size = d;
    task.rows = rows;
    task.padded_rows = (rows + kTokenPad - 1) / kTokenPad * kTokenPad;
    task.heads = shape.heads;
    task.first_head = kv * group;
    task.scale = attention_score_scale(d);
    task.ld = ld;
    task.ld_out = ld_out;
    task.q = qkv + begin * ld + q_column;
    task.k = qkv + begin * ld + k_column;
    task.v = qkv + begin * ld + v_column;
    task.d_out = d_out + begin * ld_out + q_column;
    task.max_exponent = max_exponent + begin * shape.heads;
    task.inverse_sum = inverse_sum + begin * shape.heads;
    task.dq = d_qkv + begin * ld + q_column;
    task.dk = d_qkv + begin * ld + k_column;
    task.dv = d_qkv + begin * ld + v_column;
    backward_task(tile, group, out + begin * ld_out + q_column, &work, &task);
  });
}

}  // namespace lockstep::ops
