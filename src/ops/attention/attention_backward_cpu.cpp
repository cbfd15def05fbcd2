// SPDX-License-Identifier: Apache-2.0
// Tasks: (sample, key/value head). Blocks of 64 keys ascending; for each, the group's heads ascending and
// their tiles of 64 queries ascending: the order of every chain at once, without a lock.
#include <algorithm>

#include "core/buffer.h"
#include "numerics/reduce.h"
#include "ops/attention/attention_scale.h"
#include "ops/attention/attention_tasks.h"

namespace lockstep::ops {
namespace {

using numerics::kKeyBlock;
using numerics::kTokenPad;

// Memory of one thread.
struct Workspace {
  Buffer<float> q, d_out, dq, row_sums;
  Buffer<float> k_rows, k_columns, v_columns, dk, dv, dk_total, dv_total;
  Buffer<float> p{kKeyBlock * kKeyBlock};
  Buffer<float> ds{kKeyBlock * kKeyBlock};

  void prepare(int64_t group, int64_t rows, int64_t d) {
    for (Buffer<float>* x : {&q, &d_out, &dq}) x->ensure(group * rows * d);
    row_sums.ensure(group * rows);
    for (Buffer<float>* x : {&k_rows, &k_columns, &v_columns, &dk, &dv, &dk_total, &dv_total})
      x->ensure(d * kKeyBlock);
  }
};

// Rows with stride ld_from to rows with stride ld_to, times factor.
void copy_rows(const float* from, int64_t ld_from, int64_t rows, int64_t d, float factor, float* to,
               int64_t ld_to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < d; ++i) to[row * ld_to + i] = from[row * ld_from + i] * factor;
  }
}

// Rows [0, keys) with stride ld to [d][64]; columns past the last row are +0.
void copy_columns(const float* from, int64_t ld, int64_t keys, int64_t d, float* to) {
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j < keys; ++j) to[i * kKeyBlock + j] = from[j * ld + i];
    for (int64_t j = keys; j < kKeyBlock; ++j) to[i * kKeyBlock + j] = 0.0F;
  }
}

// x into the total, and x to +0. The first chunk is the total: adding +0 could turn its -0 into +0.
void move_chunk(bool first, int64_t n, float* x, float* total) {
  for (int64_t i = 0; i < n; ++i) total[i] = first ? x[i] : total[i] + x[i];
  std::fill(x, x + n, 0.0F);
}

void add_total(const float* total, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = total[i] + x[i];
}

// Where the sample's matrices begin, at the group's first query head or the key/value head.
struct Source {
  int64_t ld, ld_out;
  const float *q, *k, *v, *out, *d_out;
  float *dq, *dk, *dv;
};

void backward_task(BackwardTile tile, int64_t group, const Source& source, Workspace* work,
                   BackwardTask task) {
  const int64_t d = task.head_size;
  const int64_t rows = task.rows;
  work->prepare(group, rows, d);
  for (int64_t g = 0; g < group; ++g) {
    const float* d_out = source.d_out + g * d;
    copy_rows(source.q + g * d, source.ld, rows, d, 1.0F, work->q.data() + g * rows * d, d);
    copy_rows(d_out, source.ld_out, rows, d, 1.0F, work->d_out.data() + g * rows * d, d);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * source.ld_out;
      work->row_sums[g * rows + row] = numerics::row_dot(d_out + at, source.out + g * d + at, d);
    }
  }
  std::fill(work->dq.data(), work->dq.data() + group * rows * d, 0.0F);
  task.q = work->q.data();
  task.d_out = work->d_out.data();
  task.row_sums = work->row_sums.data();
  task.dq = work->dq.data();
  task.k_rows = work->k_rows.data();
  task.k_columns = work->k_columns.data();
  task.v_columns = work->v_columns.data();
  task.dk = work->dk.data();
  task.dv = work->dv.data();
  task.dk_total = work->dk_total.data();
  task.dv_total = work->dv_total.data();
  task.p = work->p.data();
  task.ds = work->ds.data();

  const float scale = attention_gradient_scale(d);
  for (int64_t key = 0; key < rows; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, rows - key);
    const int64_t at = key * source.ld;
    copy_rows(source.k + at, source.ld, keys, d, 1.0F, work->k_rows.data(), d);
    copy_columns(source.k + at, source.ld, keys, d, work->k_columns.data());
    copy_columns(source.v + at, source.ld, keys, d, work->v_columns.data());
    std::fill(task.dk, task.dk + kKeyBlock * d, 0.0F);
    std::fill(task.dv, task.dv + kKeyBlock * d, 0.0F);
    for (int64_t g = 0; g < group; ++g) {
      for (int64_t query = key; query < rows; query += kKeyBlock)
        tile(task, g, query, std::min(kKeyBlock, rows - query), key, keys);
    }
    const int64_t last_step = (group - 1) * (task.padded_rows - key) + rows - 1 - key;
    if (last_step >= numerics::kGradientChunk) {
      add_total(task.dk_total, keys * d, task.dk);
      add_total(task.dv_total, keys * d, task.dv);
    }
    copy_rows(task.dk, d, keys, d, scale, source.dk + at, source.ld);
    copy_rows(task.dv, d, keys, d, 1.0F, source.dv + at, source.ld);
  }
  for (int64_t g = 0; g < group; ++g)
    copy_rows(task.dq + g * rows * d, d, rows, d, scale, source.dq + g * d, source.ld);
}

}  // namespace

void end_chunk(const BackwardTask& task, int64_t step) {
  const bool first = step == numerics::kGradientChunk;
  move_chunk(first, kKeyBlock * task.head_size, task.dk, task.dk_total);
  move_chunk(first, kKeyBlock * task.head_size, task.dv, task.dv_total);
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
    const int64_t q_at = begin * ld + kv * group * d;
    const int64_t k_at = begin * ld + (shape.heads + kv) * d;
    const int64_t v_at = k_at + shape.kv_heads * d;
    const int64_t out_at = begin * ld_out + kv * group * d;
    const Source source{ld,           ld_out,         qkv + q_at,   qkv + k_at,   qkv + v_at,
                        out + out_at, d_out + out_at, d_qkv + q_at, d_qkv + k_at, d_qkv + v_at};
    BackwardTask task{};
    task.head_size = d;
    task.rows = rows;
    task.padded_rows = (rows + kTokenPad - 1) / kTokenPad * kTokenPad;
    task.heads = shape.heads;
    task.first_head = kv * group;
    task.scale = attention_score_scale(d);
    task.max_exponent = max_exponent + begin * shape.heads;
    task.inverse_sum = inverse_sum + begin * shape.heads;
    backward_task(tile, group, source, &work, task);
  });
}

}  // namespace lockstep::ops
