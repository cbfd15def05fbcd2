// SPDX-License-Identifier: Apache-2.0
// VocabularyPass of profile bf16 on the CPU. The head's chain runs over slots: each sample's loss rows, then
// +0 rows up to a multiple of 16.
#pragma once

#include <cstdint>
#include <vector>

#include "model/gradient.h"
#include "model/model.h"
#include "model/network_bf16.h"

namespace lockstep::model {

class VocabularyPassBf16 {
 public:
  explicit VocabularyPassBf16(const NetworkBf16& network) : network_(network) {}

  Status log_probs(const cpu::Context& context, const Bf16* hidden, const std::vector<LossRow>& rows,
                   double temperature, std::vector<float>* log_probs, std::vector<double>* entropies);
  Status backward(const cpu::Context& context, const Bf16* hidden, const MicroBatchWork& work, Bf16* dh,
                  GradientImage* image);

  static int64_t bytes(const ModelConfig& config, int64_t loss_rows);

 private:
  // Loss rows [begin, end) stand in slots from `first_slot` on, `slots` of them with padding.
  struct Block {
    int64_t begin, end, first_slot, slots;
  };
  // Blocks of at most 256 slots.
  static std::vector<Block> blocks(const std::vector<LossRow>& rows, int64_t slots);
  Status block_logits(const cpu::Context& context, const Bf16* hidden, const std::vector<LossRow>& rows,
                      const Block& block, float scale, std::vector<float>* log_probs,
                      std::vector<double>* entropies);

  const NetworkBf16& network_;
  Buffer<Bf16> gathered_, normed_, gradient_, d_normed_, dy_;
  Buffer<float> logits_, product_, inverse_rms_;
  std::vector<ops::VocabularySums> sums_;
};

}  // namespace lockstep::model
