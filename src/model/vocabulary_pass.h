// SPDX-License-Identifier: Apache-2.0
// Final norm, vocabulary product, log-probs and their gradients over the rows that carry loss, in blocks of
// rows so that the logits of a micro-batch are never all in memory. Blocks change no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "model/gradient.h"
#include "model/model.h"
#include "model/network.h"
#include "ops/vocabulary/vocabulary.h"

namespace lockstep::model {

class VocabularyPass {
 public:
  explicit VocabularyPass(const Network& network) : network_(network) {}

  // Log-probs (binary32) and entropies (nats) of all rows; hidden [rows, H] before the final norm.
  Status log_probs(const cpu::Context& context, const float* hidden, const std::vector<LossRow>& rows,
                   double temperature, std::vector<float>* log_probs, std::vector<double>* entropies);

  // Computes log-probs block by block, asks for the derivatives of a block, and writes dh [rows, H]: zero but
  // in loss rows. Adds head and final norm to `image`.
  Status backward(const cpu::Context& context, const float* hidden, const MicroBatchWork& work, float* dh,
                  GradientImage* image);

  static int64_t bytes(const ModelConfig& config, int64_t loss_rows);

 private:
  Status block_logits(const cpu::Context& context, const float* hidden, const std::vector<LossRow>& rows,
                      int64_t begin, int64_t end, float scale, std::vector<float>* log_probs,
                      std::vector<double>* entropies);

  const Network& network_;
  Buffer<float> gathered_, normed_, d_normed_, logits_, dy_, inverse_rms_;
  std::vector<ops::VocabularySums> sums_;
};

}  // namespace lockstep::model
