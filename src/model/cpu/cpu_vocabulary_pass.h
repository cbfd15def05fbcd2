// SPDX-License-Identifier: Apache-2.0
// Final norm, vocabulary product, log-probs and their gradients over the rows that carry loss, in blocks of
// slots so that the logits of a micro-batch are never all in memory. Blocks change no bit. The head's chain
// runs over slots: each sample's loss rows, then +0 rows up to the padding of the profile.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cpu/cpu_gradient.h"
#include "model/cpu/cpu_network.h"
#include "model/model.h"

namespace lockstep::model {

template <class E>
class CpuVocabularyPass {
 public:
  using Ops = CpuOps<E>;
  explicit CpuVocabularyPass(const CpuNetwork<E>& network) : network_(network) {}

  // Log-probs (binary32) and entropies (nats) of all rows; hidden [rows, H] before the final norm.
  Status log_probs(const cpu::Context& context, const E* hidden, const std::vector<LossRow>& rows,
                   double temperature, std::vector<float>* log_probs, std::vector<double>* entropies);

  // Computes log-probs block by block, asks for the derivatives of a block, and writes dh [rows, H]: zero but
  // in loss rows. Adds head and final norm to `image`.
  Status backward(const cpu::Context& context, const E* hidden, const MicroBatchWork& work, E* dh,
                  CpuGradient* image);

  static int64_t bytes(const ModelConfig& config, int64_t loss_rows);

 private:
  // Loss rows [begin, end) stand in slots from `first_slot` on, `slots` of them with padding.
  struct Block {
    int64_t begin, end, first_slot, slots;
  };
  static std::vector<Block> blocks(const std::vector<LossRow>& rows, int64_t slots);
  Status block_logits(const cpu::Context& context, const E* hidden, const std::vector<LossRow>& rows,
                      const Block& block, float scale, std::vector<float>* log_probs,
                      std::vector<double>* entropies);

  const CpuNetwork<E>& network_;
  Buffer<E> gathered_, normed_, gradient_, d_normed_, dy_;
  Buffer<float> logits_, product_, inverse_rms_;
  std::vector<ops::VocabularySums> sums_;
};

}  // namespace lockstep::model
