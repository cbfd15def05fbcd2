// SPDX-License-Identifier: Apache-2.0
// What a decode step is about, in device memory: one copy a call. Addresses depend only on the sizes while
// the memory does not grow.
#pragma once

#include <algorithm>
#include <vector>

#include "device/cuda/staging.h"
#include "model/cuda/tensor_ops.h"
#include "model/model.h"
#include "numerics/constants.h"
#include "ops/vocabulary/next_tokens_cuda.h"

namespace lockstep::model {

class DecodeInputs {
 public:
  // Rows are padded to `padded_rows` and page tables to `padded_pages`, where those are more; padding reads
  // and writes nothing of a sequence.
  void send(const cuda::Context& device, const DecodeBatch& batch, int64_t padded_rows,
            int64_t padded_pages) {
    Host host(batch, padded_rows, padded_pages);
    staging_.clear(device);
    const int64_t handles[] = {
        staging_.add(host.ids),    staging_.add(host.positions),     staging_.add(host.first_row),
        staging_.add(host.count),  staging_.add(host.run_positions), staging_.add(host.sequence),
        staging_.add(host.chunk),  staging_.add(host.row_sequence),  staging_.add(host.keys),
        staging_.add(host.table),  staging_.add(host.draw_rows),     staging_.add(host.draws),
        staging_.add(host.faults), staging_.add(host.steps)};
    staging_.send(device);
    rows_ = host.shape;
    rows_.ids = staging_.at<int32_t>(handles[0]);
    rows_.positions = staging_.at<int32_t>(handles[1]);
    rows_.run_first_row = staging_.at<int32_t>(handles[2]);
    rows_.run_rows = staging_.at<int32_t>(handles[3]);
    rows_.run_position = staging_.at<int32_t>(handles[4]);
    rows_.run_sequence = staging_.at<int32_t>(handles[5]);
    rows_.chunk_rows = staging_.at<int32_t>(handles[6]);
    rows_.row_sequence = staging_.at<int32_t>(handles[7]);
    rows_.decode_keys = staging_.at<int32_t>(handles[8]);
    rows_.page_table = staging_.at<int32_t>(handles[9]);
    draw_rows_ = staging_.at<int32_t>(handles[10]);
    draws_ = staging_.at<ops::VocabularyDraw>(handles[11]);
    faults_ = writable(staging_.at<unsigned long long>(handles[12]));
    steps_ = writable(staging_.at<int32_t>(handles[13]));
    draw_count_ = static_cast<int64_t>(host.draws.size());
  }

  const DeviceRows& rows() const { return rows_; }
  int64_t draw_count() const { return draw_count_; }
  const int32_t* draw_rows() const { return draw_rows_; }
  const ops::VocabularyDraw* draws() const { return draws_; }
  unsigned long long* faults() const { return faults_; }  // scores; logits
  int32_t* steps() const { return steps_; }               // 0
  // Where every row draws: what the next step changes.
  ops::NextTokenRows next() const {
    return {writable(rows_.ids), writable(rows_.positions), writable(rows_.run_position),
            writable(rows_.decode_keys), writable(draws_)};
  }

 private:
  // The copy on the device is this object's own.
  template <typename T>
  static T* writable(const T* p) {
    return const_cast<T*>(p);
  }

  struct Host {
    DeviceRows shape;
    std::vector<int32_t> ids, positions, first_row, count, run_positions, sequence, chunk, row_sequence, keys,
        table, draw_rows, steps = {0};
    std::vector<ops::VocabularyDraw> draws;
    std::vector<unsigned long long> faults = {cuda::kNoFault, cuda::kNoFault};

    Host(const DecodeBatch& batch, int64_t padded_rows, int64_t padded_pages)
        : ids(batch.ids), positions(batch.positions) {
      shape.max_pages = padded_pages;
      for (const DecodeRun& run : batch.runs) {
        shape.max_pages = std::max(shape.max_pages, static_cast<int64_t>(run.pages.size()));
        const bool single = run.rows == 1;
        shape.singles = shape.singles || single;
        if (!single) shape.max_chunk_rows = std::max(shape.max_chunk_rows, run.rows);
        shape.max_run_rows = std::max(shape.max_run_rows, run.rows);
      }
      // A bound, not the largest: it may not change from step to step.
      shape.max_keys = shape.max_pages * numerics::kKeyBlock;
      const size_t rows = std::max(batch.ids.size(), static_cast<size_t>(padded_rows));
      const size_t padding = rows - batch.ids.size();
      row_sequence.assign(rows, -1);
      keys.assign(rows, 0);
      table.assign((batch.runs.size() + padding) * static_cast<size_t>(shape.max_pages), 0);
      for (const DecodeRun& run : batch.runs) add(run);
      for (size_t row = batch.ids.size(); row < rows; ++row) add_padding(static_cast<int32_t>(row));
      for (const DecodeDraw& d : batch.draws) {
        draw_rows.push_back(static_cast<int32_t>(d.row));
        draws.push_back({d.seed, d.ordinal, d.sample, d.position, static_cast<uint32_t>(d.purpose)});
      }
      for (size_t row = batch.ids.size(); row < rows; ++row) {
        draw_rows.push_back(static_cast<int32_t>(row));
        draws.emplace_back();
      }
      shape.rows = static_cast<int64_t>(ids.size());
      shape.runs = static_cast<int64_t>(first_row.size());
    }

    void add(const DecodeRun& run) {
      const auto number = static_cast<int32_t>(first_row.size());
      const bool single = run.rows == 1;
      first_row.push_back(static_cast<int32_t>(run.first_row));
      count.push_back(static_cast<int32_t>(run.rows));
      run_positions.push_back(static_cast<int32_t>(run.first_position));
      sequence.push_back(number);
      chunk.push_back(single ? 0 : static_cast<int32_t>(run.rows));
      for (int64_t r = 0; r < run.rows; ++r) row_sequence[static_cast<size_t>(run.first_row + r)] = number;
      if (single) keys[static_cast<size_t>(run.first_row)] = static_cast<int32_t>(run.first_position + 1);
      std::copy(run.pages.begin(), run.pages.end(),
                table.begin() + static_cast<std::ptrdiff_t>(number) * shape.max_pages);
    }
    void add_padding(int32_t row) {
      ids.push_back(-1);
      positions.push_back(0);
      sequence.push_back(static_cast<int32_t>(first_row.size()));
      first_row.push_back(row);
      count.push_back(0);
      run_positions.push_back(0);
      chunk.push_back(0);
    }
  };

  cuda::Staging staging_;
  DeviceRows rows_;
  const int32_t* draw_rows_ = nullptr;
  const ops::VocabularyDraw* draws_ = nullptr;
  unsigned long long* faults_ = nullptr;
  int32_t* steps_ = nullptr;
  int64_t draw_count_ = 0;
};

}  // namespace lockstep::model
