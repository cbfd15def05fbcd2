// SPDX-License-Identifier: Apache-2.0
// Decoder and Learner of the CPU over the network and the passes of a profile. E: float or Bf16.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "model/cpu/cpu_gradient.h"
#include "model/cpu/cpu_network.h"
#include "model/cpu/cpu_training_pass.h"
#include "model/cpu/cpu_vocabulary_pass.h"
#include "model/model.h"
#include "ops/tensor_sum/tensor_sum.h"

namespace lockstep::model {

template <class E>
class CpuDecoder : public Decoder {
 public:
  explicit CpuDecoder(const CpuNetwork<E>& network)
      : network_(network), page_elements_(network.config().layers * network.kv_layer_elements()) {}

  void ensure_pages(int64_t count) override {
    while (static_cast<int64_t>(pages_.size()) < count) pages_.emplace_back(page_elements_);
  }
  void clear_page(int32_t page) override { pages_[static_cast<size_t>(page)].fill_zero(); }
  void copy_page(int32_t from, int32_t to) override {
    std::copy_n(pages_[static_cast<size_t>(from)].data(), page_elements_,
                pages_[static_cast<size_t>(to)].data());
  }

  Status step(const cpu::Context& context, const DecodeBatch& in, const ops::SamplingSettings& sampling,
              std::vector<DrawnToken>* drawn) override {
    const int64_t h = network_.config().hidden;
    const int64_t rows = static_cast<int64_t>(in.ids.size());
    ForwardBatch<E> batch;
    std::vector<std::vector<E*>> pages(in.runs.size());
    for (size_t i = 0; i < in.runs.size(); ++i) {
      const DecodeRun& run = in.runs[i];
      for (const int32_t page : run.pages) pages[i].push_back(pages_[static_cast<size_t>(page)].data());
      batch.runs.push_back({run.first_row, run.rows, run.first_position, pages[i].data()});
    }
    batch.rows = rows;
    batch.ids = in.ids.data();
    batch.positions = in.positions.data();
    batch.layer_stride = network_.kv_layer_elements();
    hidden_.ensure(rows * h);
    LOCKSTEP_RETURN_IF_ERROR(network_.forward(context, batch, hidden_.data(), &activations_, &scratch_));
    drawn->assign(in.draws.size(), {});
    if (!in.draws.empty()) draw(context, in, sampling, drawn);
    return ok_status();
  }

 private:
  void draw(const cpu::Context& context, const DecodeBatch& in, const ops::SamplingSettings& sampling,
            std::vector<DrawnToken>* drawn) {
    const int64_t h = network_.config().hidden;
    const int64_t vocab = network_.config().vocab;
    const int64_t rows = static_cast<int64_t>(in.draws.size());
    const float scale = ops::vocabulary_scale(sampling.temperature);
    last_.ensure(rows * h);
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(hidden_.data() + in.draws[static_cast<size_t>(i)].row * h, h, last_.data() + i * h);
    }
    normed_.ensure(rows * h);
    logits_.ensure(rows * vocab);
    sums_.resize(static_cast<size_t>(rows));
    network_.final_norm(context, last_.data(), rows, normed_.data(), nullptr);
    network_.logits(context, normed_.data(), rows, logits_.data());
    ops::vocabulary_sums_cpu(context, logits_.data(), vocab, rows, vocab, scale, sums_.data());
    context.parallel_for(rows, [&](int64_t i) {
      const float* row = logits_.data() + i * vocab;
      const ops::VocabularySums& sums = sums_[static_cast<size_t>(i)];
      if (!sums.valid) return;
      const int32_t token =
          ops::sample_token_cpu(row, vocab, sampling, sums, in.draws[static_cast<size_t>(i)].bits());
      (*drawn)[static_cast<size_t>(i)] = {token, ops::vocabulary_log_prob(row[token], scale, sums)};
    });
  }

  const CpuNetwork<E>& network_;
  int64_t page_elements_;
  std::vector<Buffer<E>> pages_;
  LayerActivations<E> activations_;
  LayerScratch<E> scratch_;
  Buffer<E> hidden_, last_, normed_;
  Buffer<float> logits_;
  std::vector<ops::VocabularySums> sums_;
};

// What the profiles have in common; apply() is a profile's own.
template <class E>
class CpuLearner : public Learner {
 public:
  CpuLearner(const CpuNetwork<E>& network, const ParameterTable& table, OptimizerState* state, bool recompute)
      : network_(network), table_(table), state_(state), pass_(network, recompute), vocabulary_(network) {}

  void begin(const cpu::Context& context, const UpdateShape& shape) override {
    if (!image_) image_ = std::make_unique<CpuGradient>(table_);
    image_->begin(context, shape.leaves, shape.tokens);
  }
  Status micro_batch(const cpu::Context& context, const MicroBatchWork& work) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const E* hidden, pass_.forward(context, *work.batch));
    dh_.ensure(work.batch->rows() * network_.config().hidden);
    LOCKSTEP_RETURN_IF_ERROR(vocabulary_.backward(context, hidden, work, dh_.data(), image_.get()));
    return pass_.backward(context, *work.batch, *work.input_leaves, dh_.data(), image_.get());
  }
  Status gradient_status() const override { return image_->status(); }
  double gradient_squares(const cpu::Context& context) const override {
    double squares = 0;
    for (const Parameter& p : table_.by_name()) {
      squares += ops::gradient_sum_of_squares_cpu(context, image_->data() + p.offset, p.size);
    }
    return squares;
  }
  NamedDigests gradient_digests(const cpu::Context& context) const override {
    return digest_gradient(context, table_, image_->data());
  }
  const int64_t* gradient_image() override { return image_->data(); }
  NamedDigests state_digests(const cpu::Context& context) const override {
    NamedDigests out;
    append_digests("exp_avg.", digest_parameters(context, table_, state_->m.data()), &out);
    append_digests("exp_avg_sq.", digest_parameters(context, table_, state_->v.data()), &out);
    return out;
  }

  Status log_probs(const cpu::Context& context, const MicroBatch& batch, const std::vector<LossRow>& rows,
                   double temperature, std::vector<float>* log_probs,
                   std::vector<double>* entropies) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const E* hidden, pass_.forward(context, batch));
    return vocabulary_.log_probs(context, hidden, rows, temperature, log_probs, entropies);
  }
  Status logits(const cpu::Context& context, const MicroBatch& batch, float* out) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const E* hidden, pass_.forward(context, batch));
    Buffer<E> normed(batch.rows() * network_.config().hidden);
    network_.final_norm(context, hidden, batch.rows(), normed.data(), nullptr);
    network_.logits(context, normed.data(), batch.rows(), out);
    return ok_status();
  }

 protected:
  const CpuNetwork<E>& network_;
  const ParameterTable& table_;
  OptimizerState* state_;
  std::unique_ptr<CpuGradient> image_;  // from the first update on

 private:
  CpuTrainingPass<E> pass_;
  CpuVocabularyPass<E> vocabulary_;
  Buffer<E> dh_;
};

}  // namespace lockstep::model
