// SPDX-License-Identifier: Apache-2.0
// Decoder on the GPU: pages of keys and values in one allocation, one step over a batch of rows, tokens drawn
// on the device.
#pragma once

#include <algorithm>
#include <vector>

#include "model/cuda/cuda_network.h"
#include "model/model.h"
#include "numerics/constants.h"

namespace lockstep::model {

template <class E>
class CudaDecoder : public Decoder {
 public:
  using Ops = TensorOps<E>;
  explicit CudaDecoder(const CudaNetwork<E>& network)
      : network_(network), device_(network.device()), fault_(2) {
    const ModelConfig& config = network.config();
    layer_elements_ = 2 * config.kv_heads * numerics::kKeyBlock * config.head_size;
    page_elements_ = config.layers * layer_elements_;
  }

  void ensure_pages(int64_t count) override {
    if (count <= pages_) return;
    const int64_t wanted = std::max(count, std::max<int64_t>(64, pages_ + pages_ / 2));
    cuda::DeviceBuffer<E> grown(wanted * page_elements_,
                                "the KV cache; a smaller --max-total-tokens needs less");
    if (pages_ > 0) cuda::copy_on_device(device_, grown.data(), kv_.data(), pages_ * page_bytes());
    device_.synchronize();
    kv_ = std::move(grown);
    pages_ = wanted;
  }
  void clear_page(int32_t page) override {
    cuda::fill(device_, kv_.data() + page * page_elements_, 0, page_bytes());
  }
  void copy_page(int32_t from, int32_t to) override {
    cuda::copy_on_device(device_, kv_.data() + to * page_elements_, kv_.data() + from * page_elements_,
                         page_bytes());
  }

  Status step(const cpu::Context& /*context*/, const DecodeBatch& in, const ops::SamplingSettings& sampling,
              std::vector<DrawnToken>* drawn) override {
    const ModelConfig& config = network_.config();
    const int64_t h = config.hidden;
    const DeviceRows rows = describe(in);
    hidden_.ensure(rows.rows * h, "the residual stream");
    activations_.ensure(config, rows.rows);
    scratch_.ensure(config, rows.rows);
    cuda::fill(device_, fault_.data(), 0xFF, fault_.size_bytes());
    const DevicePages<E> pages{kv_.data(), page_elements_, layer_elements_};
    E* hidden = hidden_.data();
    Ops::embedding(device_, network_.at(network_.table().embedding()), rows.ids, rows.rows, h, hidden);
    for (int64_t layer = 0; layer < config.layers; ++layer)
      network_.layer_forward(layer, rows, &pages, hidden, hidden, hidden, &activations_, &scratch_,
                             fault_.data());
    const auto count = static_cast<int64_t>(in.draws.size());
    drawn->assign(in.draws.size(), {});
    if (count > 0) draw(rows, count, sampling);
    return collect(count, drawn);
  }

 private:
  int64_t page_bytes() const { return page_elements_ * static_cast<int64_t>(sizeof(E)); }

  DeviceRows describe(const DecodeBatch& in) {
    const auto rows = static_cast<int64_t>(in.ids.size());
    std::vector<int32_t> first, count, position, sequence, chunk, table, draw_rows;
    std::vector<int32_t> row_sequence(in.ids.size()), keys(in.ids.size(), 0);
    DeviceRows out;
    out.rows = rows;
    out.runs = static_cast<int64_t>(in.runs.size());
    for (const DecodeRun& run : in.runs)
      out.max_pages = std::max(out.max_pages, static_cast<int64_t>(run.pages.size()));
    table.assign(in.runs.size() * static_cast<size_t>(out.max_pages), 0);
    for (size_t i = 0; i < in.runs.size(); ++i) {
      const DecodeRun& run = in.runs[i];
      const bool single = run.rows == 1;
      first.push_back(static_cast<int32_t>(run.first_row));
      count.push_back(static_cast<int32_t>(run.rows));
      position.push_back(static_cast<int32_t>(run.first_position));
      sequence.push_back(static_cast<int32_t>(i));
      chunk.push_back(single ? 0 : static_cast<int32_t>(run.rows));
      for (int64_t r = 0; r < run.rows; ++r)
        row_sequence[static_cast<size_t>(run.first_row + r)] = static_cast<int32_t>(i);
      if (single) keys[static_cast<size_t>(run.first_row)] = static_cast<int32_t>(run.first_position + 1);
      out.singles = out.singles || single;
      if (!single) out.max_chunk_rows = std::max(out.max_chunk_rows, run.rows);
      out.max_run_rows = std::max(out.max_run_rows, run.rows);
      out.max_keys = std::max(out.max_keys, run.first_position + run.rows);
      std::copy(run.pages.begin(), run.pages.end(),
                table.begin() + static_cast<std::ptrdiff_t>(i) * out.max_pages);
    }
    std::vector<ops::VocabularyDraw> draws;
    for (const DecodeDraw& d : in.draws) {
      draw_rows.push_back(static_cast<int32_t>(d.row));
      draws.push_back({d.seed, d.ordinal, d.sample, d.position, static_cast<uint32_t>(d.purpose)});
    }
    staging_.clear(device_);
    const int64_t handles[] = {staging_.add(in.ids), staging_.add(in.positions), staging_.add(first),
                               staging_.add(count),  staging_.add(position),     staging_.add(sequence),
                               staging_.add(chunk),  staging_.add(row_sequence), staging_.add(keys),
                               staging_.add(table),  staging_.add(draw_rows),    staging_.add(draws)};
    staging_.send(device_);
    out.ids = staging_.at<int32_t>(handles[0]);
    out.positions = staging_.at<int32_t>(handles[1]);
    out.run_first_row = staging_.at<int32_t>(handles[2]);
    out.run_rows = staging_.at<int32_t>(handles[3]);
    out.run_position = staging_.at<int32_t>(handles[4]);
    out.run_sequence = staging_.at<int32_t>(handles[5]);
    out.chunk_rows = staging_.at<int32_t>(handles[6]);
    out.row_sequence = staging_.at<int32_t>(handles[7]);
    out.decode_keys = staging_.at<int32_t>(handles[8]);
    out.page_table = staging_.at<int32_t>(handles[9]);
    draw_rows_ = staging_.at<int32_t>(handles[10]);
    draws_ = staging_.at<ops::VocabularyDraw>(handles[11]);
    return out;
  }

  void draw(const DeviceRows& /*rows*/, int64_t count, const ops::SamplingSettings& sampling) {
    const ModelConfig& config = network_.config();
    const int64_t h = config.hidden;
    const int64_t ld = (config.vocab + 7) / 8 * 8;
    last_.ensure(count * h, "the residual stream");
    normed_.ensure(count * h, "the residual stream");
    logits_.ensure(count * ld, "logits");
    tokens_.ensure(count, "tokens");
    log_probs_.ensure(count, "log-probs");
    Ops::embedding(device_, hidden_.data(), draw_rows_, count, h, last_.data());  // gathers rows
    Ops::norm(device_, last_.data(), network_.at(network_.table().final_norm()), config.rms_eps, count, h,
              normed_.data(), nullptr);
    Ops::product(device_, normed_.data(), network_.at(network_.table().head()), count, config.vocab, h,
                 logits_.data(), ld);
    ops::vocabulary_sample_cuda(device_, logits_.data(), ld, count, config.vocab, sampling, draws_,
                                tokens_.data(), log_probs_.data(), {fault_.data() + 1, 0});
  }

  Status collect(int64_t count, std::vector<DrawnToken>* drawn) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::vector<float> log_probs(static_cast<size_t>(count));
    unsigned long long faults[2];
    if (count > 0) {
      tokens_.download(device_, tokens.data(), count);
      log_probs_.download(device_, log_probs.data(), count);
    }
    fault_.download(device_, faults, 2);
    if (faults[0] != cuda::kNoFault) {
      return stopped("layer {}: an attention score is NaN or at least 2^21; the weights have diverged",
                     faults[0] >> kFaultLayerShift);
    }
    for (int64_t i = 0; i < count; ++i)
      (*drawn)[static_cast<size_t>(i)] = {tokens[static_cast<size_t>(i)], log_probs[static_cast<size_t>(i)]};
    if (faults[1] != cuda::kNoFault)
      (*drawn)[static_cast<size_t>(faults[1])] = {};  // the first without a softmax
    return ok_status();
  }

  const CudaNetwork<E>& network_;
  const cuda::Context& device_;
  int64_t layer_elements_ = 0;
  int64_t page_elements_ = 0;
  int64_t pages_ = 0;
  cuda::DeviceBuffer<E> kv_;
  cuda::Staging staging_;
  const int32_t* draw_rows_ = nullptr;
  const ops::VocabularyDraw* draws_ = nullptr;
  DeviceActivations<E> activations_;
  DeviceScratch<E> scratch_;
  cuda::DeviceBuffer<E> hidden_, last_, normed_;
  cuda::DeviceBuffer<float> logits_, log_probs_;
  cuda::DeviceBuffer<int32_t> tokens_;
  cuda::DeviceBuffer<unsigned long long> fault_;  // scores; logits
};

}  // namespace lockstep::model
