// SPDX-License-Identifier: Apache-2.0
// Decoder on the GPU: pages of keys and values in one allocation, one step over a batch of rows, tokens drawn
// on the device. Steps of one row a sequence are recorded as CUDA graphs and follow each other without the
// host.
#pragma once

#include <algorithm>
#include <vector>

#include "model/cuda/cuda_network.h"
#include "model/cuda/decode_graphs.h"
#include "model/cuda/decode_inputs.h"
#include "model/model.h"
#include "numerics/constants.h"

namespace lockstep::model {

template <class E>
class CudaDecoder : public Decoder {
 public:
  using Ops = TensorOps<E>;
  CudaDecoder(const CudaNetwork<E>& network, bool graphs)
      : network_(network), device_(network.device()), use_graphs_(graphs) {
    const ModelConfig& config = network.config();
    layer_elements_ = 2 * config.kv_heads * numerics::kKeyBlock * config.head_size;
    page_elements_ = config.layers * layer_elements_;
  }

  void ensure_pages(int64_t count) override {
    if (count <= pages_) return;
    const int64_t ahead = std::max<int64_t>(64, pages_ + pages_ / 2);
    grow(std::max(count, std::min(ahead, device_.free_bytes() / page_bytes())));
  }
  // Nothing is kept, so that old and new are not there together. Where it does not fit, a quarter of what is
  // free: more is taken only when it is needed.
  void reserve_pages(int64_t count) override {
    const int64_t most = (device_.free_bytes() + kv_.size_bytes()) / page_bytes();
    const int64_t pages = count <= most ? count : std::max(pages_, most / 4);
    if (pages <= pages_) return;
    device_.synchronize();
    kv_.clear();
    pages_ = 0;
    grow(pages);
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
    inputs_.send(device_, in, 0, 0);
    const auto count = static_cast<int64_t>(in.draws.size());
    ensure(inputs_.rows().rows, count, 1);
    forward();
    if (count > 0) {
      // The rows that draw, gathered.
      Ops::embedding(device_, hidden_.data(), inputs_.draw_rows(), count, network_.config().hidden,
                     last_.data());
      draw(last_.data(), count, sampling);
    }
    return collect(count, drawn);
  }

  int64_t preferred_steps() const override { return kSteps; }
  Status steps(const cpu::Context& /*context*/, const DecodeBatch& in, int64_t n,
               const ops::SamplingSettings& sampling, std::vector<DrawnToken>* drawn) override {
    const auto rows = static_cast<int64_t>(in.ids.size());
    const DecodeGraphs::Key key{padded_decode_rows(rows), padded_pages(in), sampling};
    inputs_.send(device_, in, key.rows, key.pages);
    ensure(key.rows, key.rows, n);
    const auto launches = [&] { one_of_many(key.rows, sampling); };
    for (int64_t i = 0; i < n; ++i) {
      if (use_graphs_) {
        graphs_.run(
            device_, key, [&] { return memory(); }, launches);
      } else {
        launches();
      }
    }
    return collect_steps(rows, key.rows, n, drawn);
  }

 private:
  static constexpr int64_t kSteps = 8;       // without the host; more gain nothing
  static constexpr int64_t kFaultWords = 2;  // scores; logits

  int64_t page_bytes() const { return page_elements_ * static_cast<int64_t>(sizeof(E)); }

  void grow(int64_t pages) {
    cuda::DeviceBuffer<E> grown(pages * page_elements_,
                                "the KV cache; a smaller --max-total-tokens needs less");
    if (pages_ > 0) cuda::copy_on_device(device_, grown.data(), kv_.data(), pages_ * page_bytes());
    device_.synchronize();
    kv_ = std::move(grown);
    pages_ = pages;
  }

  static int64_t padded_pages(const DecodeBatch& in) {
    constexpr int64_t kUnit = numerics::kAttentionSegment / numerics::kKeyBlock;
    size_t most = 0;
    for (const DecodeRun& run : in.runs) most = std::max(most, run.pages.size());
    return (static_cast<int64_t>(most) + kUnit - 1) / kUnit * kUnit;
  }

  void ensure(int64_t rows, int64_t draws, int64_t steps) {
    const ModelConfig& config = network_.config();
    const DecodeElements elements(config, rows, draws);
    hidden_.ensure(elements.hidden, "the residual stream");
    activations_.ensure(config, rows);
    scratch_.ensure(config, rows);
    last_.ensure(elements.last, "the residual stream");
    normed_.ensure(elements.last, "the residual stream");
    logits_.ensure(elements.logits, "logits");
    tokens_.ensure(draws, "tokens");
    log_probs_.ensure(draws, "log-probs");
    history_.ensure(steps * draws, "tokens");
    history_faults_.ensure(steps * kFaultWords, "tokens");
  }

  void forward() {
    const ModelConfig& config = network_.config();
    const DeviceRows& rows = inputs_.rows();
    const DevicePages<E> pages{kv_.data(), page_elements_, layer_elements_};
    E* hidden = hidden_.data();
    Ops::embedding(device_, network_.at(network_.table().embedding()), rows.ids, rows.rows, config.hidden,
                   hidden);
    for (int64_t layer = 0; layer < config.layers; ++layer)
      network_.layer_forward(layer, rows, &pages, hidden, hidden, hidden, &activations_, &scratch_,
                             inputs_.faults());
  }
  void draw(const E* hidden, int64_t count, const ops::SamplingSettings& sampling) {
    const ModelConfig& config = network_.config();
    const int64_t h = config.hidden;
    const int64_t ld = logits_stride(config);
    Ops::norm(device_, hidden, network_.at(network_.table().final_norm()), config.rms_eps, count, h,
              normed_.data(), nullptr);
    Ops::sample(device_, normed_.data(), network_.at(network_.table().head()), count, config.vocab, h,
                sampling, inputs_.draws(), logits_.data(), ld, tokens_.data(), log_probs_.data(),
                {inputs_.faults() + 1, 0});
  }
  void one_of_many(int64_t rows, const ops::SamplingSettings& sampling) {
    forward();
    draw(hidden_.data(), rows, sampling);
    ops::next_tokens_cuda(device_, tokens_.data(), log_probs_.data(), rows, inputs_.next(),
                          {inputs_.steps(), history_.data(), history_faults_.data(), inputs_.faults()});
  }
  // Every address that one_of_many() passes on and that may change.
  std::vector<const void*> memory() const {
    return {kv_.data(),
            inputs_.rows().ids,  // the first of a block: the others lie where the key puts them
            hidden_.data(),
            activations_.inverse_rms1.data(),
            activations_.qkv.data(),
            activations_.max_exponent.data(),
            activations_.inverse_sum.data(),
            activations_.attention.data(),
            activations_.h_mid.data(),
            activations_.inverse_rms2.data(),
            activations_.gate_up.data(),
            scratch_.normed.data(),
            scratch_.act.data(),
            scratch_.product.data(),
            normed_.data(),
            logits_.data(),
            tokens_.data(),
            log_probs_.data(),
            history_.data(),
            history_faults_.data(),
            network_.rope().cos,
            network_.rope().sin,
            device_.scratch(0)};
  }

  static Status score_fault(unsigned long long key) {
    return stopped("layer {}: an attention score is NaN or at least 2^21; the weights have diverged",
                   key >> kFaultLayerShift);
  }

  Status collect(int64_t count, std::vector<DrawnToken>* drawn) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::vector<float> log_probs(static_cast<size_t>(count));
    unsigned long long faults[kFaultWords];
    tokens_.download(device_, tokens.data(), count);
    log_probs_.download(device_, log_probs.data(), count);
    cuda::copy_to_host(device_, faults, inputs_.faults(), sizeof(faults));
    if (faults[0] != cuda::kNoFault) return score_fault(faults[0]);
    drawn->resize(static_cast<size_t>(count));
    for (size_t i = 0; i < drawn->size(); ++i) (*drawn)[i] = {tokens[i], log_probs[i]};
    if (faults[1] != cuda::kNoFault)
      (*drawn)[static_cast<size_t>(faults[1])] = {};  // the first without a softmax
    return ok_status();
  }

  // Up to the first step in which something went wrong, that step only where it is the first.
  Status collect_steps(int64_t rows, int64_t padded, int64_t n, std::vector<DrawnToken>* drawn) {
    std::vector<ops::DrawnRow> history(static_cast<size_t>(n * padded));
    std::vector<unsigned long long> faults(static_cast<size_t>(n * kFaultWords));
    history_.download(device_, history.data(), n * padded);
    history_faults_.download(device_, faults.data(), n * kFaultWords);
    drawn->clear();
    for (int64_t step = 0; step < n; ++step) {
      const unsigned long long* fault = faults.data() + step * kFaultWords;
      const bool bad_logit = fault[1] < static_cast<unsigned long long>(rows);  // padding may hold anything
      if (step > 0 && (fault[0] != cuda::kNoFault || bad_logit)) break;
      if (fault[0] != cuda::kNoFault) return score_fault(fault[0]);
      for (int64_t r = 0; r < rows; ++r) {
        const ops::DrawnRow& row = history[static_cast<size_t>(step * padded + r)];
        drawn->push_back({row.token, row.log_prob});
      }
      if (!bad_logit) continue;
      (*drawn)[static_cast<size_t>(fault[1])] = {};
      break;
    }
    return ok_status();
  }

  const CudaNetwork<E>& network_;
  const cuda::Context& device_;
  const bool use_graphs_;
  int64_t layer_elements_ = 0;
  int64_t page_elements_ = 0;
  int64_t pages_ = 0;
  cuda::DeviceBuffer<E> kv_;
  DecodeInputs inputs_;
  DecodeGraphs graphs_;
  DeviceActivations<E> activations_;
  DeviceScratch<E> scratch_;
  cuda::DeviceBuffer<E> hidden_, last_, normed_;
  cuda::DeviceBuffer<float> logits_, log_probs_;
  cuda::DeviceBuffer<int32_t> tokens_;
  cuda::DeviceBuffer<ops::DrawnRow> history_;
  cuda::DeviceBuffer<unsigned long long> history_faults_;
};

}  // namespace lockstep::model
