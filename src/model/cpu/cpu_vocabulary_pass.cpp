// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/cpu_vocabulary_pass.h"

#include <algorithm>
#include <cstring>

namespace lockstep::model {
namespace {

constexpr int64_t kBlockSlots = 256;  // logits in memory at once; a multiple of the padding; changes no bit

}  // namespace

template <class E>
int64_t CpuVocabularyPass<E>::bytes(const ModelConfig& config, int64_t loss_rows) {
  const int64_t rows = std::min(kBlockSlots, loss_rows);
  const int64_t rounded = Ops::kRounds ? rows * (config.vocab + config.hidden) : 0;  // gradient, product
  return rows * (config.vocab * static_cast<int64_t>(sizeof(float)) +
                 3 * config.hidden * static_cast<int64_t>(sizeof(E))) +
         rounded * static_cast<int64_t>(sizeof(E));
}

template <class E>
std::vector<typename CpuVocabularyPass<E>::Block> CpuVocabularyPass<E>::blocks(
    const std::vector<LossRow>& rows, int64_t slots) {
  std::vector<Block> out;
  int64_t row = 0;
  for (int64_t slot = 0; slot < slots; slot += kBlockSlots) {
    const int64_t end = std::min(slots, slot + kBlockSlots);
    Block block{row, row, slot, end - slot};
    while (block.end < static_cast<int64_t>(rows.size()) && rows[static_cast<size_t>(block.end)].slot < end)
      ++block.end;
    row = block.end;
    out.push_back(block);
  }
  return out;
}

template <class E>
Status CpuVocabularyPass<E>::block_logits(const cpu::Context& context, const E* hidden,
                                          const std::vector<LossRow>& rows, const Block& block, float scale,
                                          std::vector<float>* log_probs, std::vector<double>* entropies) {
  const int64_t h = network_.config().hidden;
  const int64_t vocab = network_.config().vocab;
  gathered_.ensure(block.slots * h);
  normed_.ensure(block.slots * h);
  logits_.ensure(block.slots * vocab);
  sums_.resize(static_cast<size_t>(block.slots));
  std::memset(gathered_.data(), 0, static_cast<size_t>(block.slots * h) * sizeof(E));
  for (int64_t r = block.begin; r < block.end; ++r) {
    const LossRow& row = rows[static_cast<size_t>(r)];
    std::memcpy(gathered_.data() + (row.slot - block.first_slot) * h, hidden + row.row * h,
                static_cast<size_t>(h) * sizeof(E));
  }
  // Of a row of padding the norm is +0, and so are its logits.
  network_.final_norm(context, gathered_.data(), block.slots, normed_.data(), nullptr);
  network_.logits(context, normed_.data(), block.slots, logits_.data());
  ops::vocabulary_sums_cpu(context, logits_.data(), vocab, block.slots, vocab, scale, sums_.data());
  for (int64_t r = block.begin; r < block.end; ++r) {
    const LossRow& row = rows[static_cast<size_t>(r)];
    const int64_t slot = row.slot - block.first_slot;
    const ops::VocabularySums& sums = sums_[static_cast<size_t>(slot)];
    if (!sums.valid) return stopped("a logit is NaN or infinite in training; the weights have diverged");
    (*log_probs)[static_cast<size_t>(r)] =
        ops::vocabulary_log_prob(logits_[slot * vocab + row.target], scale, sums);
    (*entropies)[static_cast<size_t>(r)] = ops::vocabulary_entropy(sums);
  }
  return ok_status();
}

template <class E>
Status CpuVocabularyPass<E>::log_probs(const cpu::Context& context, const E* hidden,
                                       const std::vector<LossRow>& rows, double temperature,
                                       std::vector<float>* log_probs, std::vector<double>* entropies) {
  const float scale = ops::vocabulary_scale(temperature);
  log_probs->resize(rows.size());
  entropies->resize(rows.size());
  const int64_t slots = rows.empty() ? 0 : rows.back().slot + 1;
  for (const Block& block : blocks(rows, slots)) {
    LOCKSTEP_RETURN_IF_ERROR(block_logits(context, hidden, rows, block, scale, log_probs, entropies));
  }
  return ok_status();
}

template <class E>
Status CpuVocabularyPass<E>::backward(const cpu::Context& context, const E* hidden, const MicroBatchWork& in,
                                      E* dh, CpuGradient* image) {
  const ModelConfig& config = network_.config();
  const ParameterTable& table = network_.table();
  const int64_t h = config.hidden;
  const int64_t vocab = config.vocab;
  const int64_t batch_rows = in.batch->rows();
  const std::vector<LossRow>& rows = *in.rows;
  const float scale = ops::vocabulary_scale(in.temperature);
  const float inverse_temperature = in.temperature > 0 ? static_cast<float>(1.0 / in.temperature) : 1.0F;
  in.log_probs->resize(rows.size());
  in.entropies->resize(rows.size());
  if (in.whole && in.slots > kBlockSlots)
    LOCKSTEP_RETURN_IF_ERROR(log_probs(context, hidden, rows, in.temperature, in.log_probs, in.entropies));

  dy_.ensure(batch_rows * h);
  std::memset(dy_.data(), 0, static_cast<size_t>(batch_rows * h) * sizeof(E));
  std::vector<RowGradient> gradients;
  std::vector<ops::VocabularyGradientRow> op_rows;
  for (const Block& block : blocks(rows, in.slots)) {
    LOCKSTEP_RETURN_IF_ERROR(block_logits(context, hidden, rows, block, scale, in.log_probs, in.entropies));
    gradients.assign(static_cast<size_t>(block.end - block.begin), {});
    LOCKSTEP_RETURN_IF_ERROR(in.gradient(block.begin, block.end, gradients.data()));
    op_rows.assign(static_cast<size_t>(block.slots), {});  // of padding: all +0
    for (int64_t r = block.begin; r < block.end; ++r) {
      const LossRow& row = rows[static_cast<size_t>(r)];
      const RowGradient& gradient = gradients[static_cast<size_t>(r - block.begin)];
      op_rows[static_cast<size_t>(row.slot - block.first_slot)] = {row.target, gradient.dlogp, gradient.dent};
    }
    if (Ops::kRounds) {
      gradient_.ensure(block.slots * vocab);
      product_.ensure(block.slots * h);
    }
    const E* gradient =
        Ops::vocabulary_gradient(context, logits_.data(), block.slots, vocab, scale, inverse_temperature,
                                 sums_.data(), op_rows.data(), gradient_.data());
    image->add_matrix(context, table.head(), gradient, vocab, normed_.data(), h, vocab, h,
                      slice_leaves(*in.loss_leaves, block.first_slot, block.first_slot + block.slots));
    d_normed_.ensure(block.slots * h);
    Ops::input_gradient(context, gradient, network_.at(table.head()), block.slots, vocab, h, product_.data(),
                        d_normed_.data());
    for (int64_t r = block.begin; r < block.end; ++r) {
      const LossRow& row = rows[static_cast<size_t>(r)];
      std::memcpy(dy_.data() + row.row * h, d_normed_.data() + (row.slot - block.first_slot) * h,
                  static_cast<size_t>(h) * sizeof(E));
    }
  }
  // The final norm over all rows: those without loss have dy = 0, which adds +0 everywhere.
  inverse_rms_.ensure(batch_rows);
  normed_.ensure(batch_rows * h);
  network_.final_norm(context, hidden, batch_rows, normed_.data(), inverse_rms_.data());
  image->add_gain(context, table.final_norm(), dy_.data(), hidden, inverse_rms_.data(), h, in.batch->samples);
  std::memset(dh, 0, static_cast<size_t>(batch_rows * h) * sizeof(E));
  Ops::norm_backward(context, dy_.data(), hidden, network_.at(table.final_norm()), inverse_rms_.data(),
                     batch_rows, h, dh);
  return ok_status();
}

template class CpuVocabularyPass<float>;
template class CpuVocabularyPass<Bf16>;

}  // namespace lockstep::model
