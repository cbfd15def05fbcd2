// SPDX-License-Identifier: Apache-2.0
// Final norm, vocabulary product, log-probs and their gradients over the rows that carry loss, in blocks of
// rows so that the logits of a micro-batch are never all in memory. Blocks change no bit.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/gradient.h"
#include "model/network.h"
#include "ops/vocabulary/vocabulary.h"

namespace lockstep::trainer {

struct LossRow {
  int64_t row = 0;     // of the micro-batch
  int32_t target = 0;  // the token it predicts
};

// Derivatives of the loss for rows [begin, end) whose log-probs (and entropies) are known now.
struct RowGradient {
  float dlogp = 0;
  float dent = 0;
};

class VocabularyPass {
 public:
  explicit VocabularyPass(const model::Network& network) : network_(network) {}

  // Log-probs (binary32) and entropies (nats) of all rows; hidden [rows, H] before the final norm.
  Status log_probs(const cpu::Context& context, const float* hidden, const std::vector<LossRow>& rows,
                   double temperature, std::vector<float>* log_probs, std::vector<double>* entropies);

  // Computes log-probs block by block, asks `gradient(begin, end)` for the derivatives of a block (all rows
  // before `end` have their log-probs), and writes dh [batch_rows, H]: zero but in loss rows. Adds head and
  // final norm to `image`. whole: log-probs of all rows are computed before the first gradient is asked for
  // (a loss over sequences).
  struct Backward {
    const float* hidden = nullptr;
    int64_t batch_rows = 0;
    const std::vector<LossRow>* rows = nullptr;
    const std::vector<model::LeafRows>* leaves = nullptr;   // of the loss rows
    const std::vector<ops::SampleRows>* samples = nullptr;  // of the micro-batch
    double temperature = 1;
    bool whole = false;
    std::vector<float>* log_probs = nullptr;
    std::vector<double>* entropies = nullptr;
    std::function<Status(int64_t begin, int64_t end, RowGradient* out)> gradient;
    float* dh = nullptr;
    model::GradientImage* image = nullptr;
  };
  Status backward(const cpu::Context& context, const Backward& in);

  static int64_t bytes(const model::ModelConfig& config, int64_t loss_rows);

 private:
  Status block_logits(const cpu::Context& context, const float* hidden, const std::vector<LossRow>& rows,
                      int64_t begin, int64_t end, float scale, std::vector<float>* log_probs,
                      std::vector<double>* entropies);

  const model::Network& network_;
  Buffer<float> gathered_, normed_, d_normed_, logits_, dy_, inverse_rms_;
  std::vector<ops::VocabularySums> sums_;
};

}  // namespace lockstep::trainer
