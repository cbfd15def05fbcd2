// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary_pass.h"

#include <algorithm>
#include <cstring>

#include "ops/rms_norm/rms_norm.h"

namespace lockstep::model {
namespace {

constexpr int64_t kBlockRows = 256;  // logits in memory at once; changes no bit

}  // namespace

int64_t VocabularyPass::bytes(const ModelConfig& config, int64_t loss_rows) {
  const int64_t rows = std::min(kBlockRows, loss_rows);
  return (rows * (config.vocab + 4 * config.hidden)) * static_cast<int64_t>(sizeof(float));
}

Status VocabularyPass::block_logits(const cpu::Context& context, const float* hidden,
                                    const std::vector<LossRow>& rows, int64_t begin, int64_t end, float scale,
                                    std::vector<float>* log_probs, std::vector<double>* entropies) {
  const int64_t h = network_.config().hidden;
  const int64_t vocab = network_.config().vocab;
  const int64_t n = end - begin;
  gathered_.ensure(n * h);
  normed_.ensure(n * h);
  logits_.ensure(n * vocab);
  sums_.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(gathered_.data() + i * h, hidden + rows[static_cast<size_t>(begin + i)].row * h,
                static_cast<size_t>(h) * sizeof(float));
  }
  network_.final_norm(context, gathered_.data(), n, normed_.data(), nullptr);
  network_.logits(context, normed_.data(), n, logits_.data());
  ops::vocabulary_sums_cpu(context, logits_.data(), vocab, n, vocab, scale, sums_.data());
  for (int64_t i = 0; i < n; ++i) {
    const ops::VocabularySums& sums = sums_[static_cast<size_t>(i)];
    const size_t row = static_cast<size_t>(begin + i);
    if (!sums.valid) return stopped("a logit is NaN or infinite in training; the weights have diverged");
    (*log_probs)[row] = ops::vocabulary_log_prob(logits_[i * vocab + rows[row].target], scale, sums);
    (*entropies)[row] = ops::vocabulary_entropy(sums);
  }
  return ok_status();
}

Status VocabularyPass::log_probs(const cpu::Context& context, const float* hidden,
                                 const std::vector<LossRow>& rows, double temperature,
                                 std::vector<float>* log_probs, std::vector<double>* entropies) {
  const float scale = ops::vocabulary_scale(temperature);
  const int64_t total = static_cast<int64_t>(rows.size());
  log_probs->resize(rows.size());
  entropies->resize(rows.size());
  for (int64_t begin = 0; begin < total; begin += kBlockRows) {
    const int64_t end = std::min(total, begin + kBlockRows);
    LOCKSTEP_RETURN_IF_ERROR(block_logits(context, hidden, rows, begin, end, scale, log_probs, entropies));
  }
  return ok_status();
}

Status VocabularyPass::backward(const cpu::Context& context, const float* hidden, const MicroBatchWork& in,
                                float* dh, GradientImage* image) {
  const int64_t batch_rows = in.batch->rows();
  const ModelConfig& config = network_.config();
  const ParameterTable& table = network_.table();
  const int64_t h = config.hidden;
  const int64_t vocab = config.vocab;
  const std::vector<LossRow>& rows = *in.rows;
  const int64_t total = static_cast<int64_t>(rows.size());
  const float scale = ops::vocabulary_scale(in.temperature);
  const float inverse_temperature = in.temperature > 0 ? static_cast<float>(1.0 / in.temperature) : 1.0F;
  in.log_probs->resize(rows.size());
  in.entropies->resize(rows.size());
  const bool first_pass = in.whole && total > kBlockRows;
  if (first_pass)
    LOCKSTEP_RETURN_IF_ERROR(log_probs(context, hidden, rows, in.temperature, in.log_probs, in.entropies));

  dy_.ensure(batch_rows * h);
  std::memset(dy_.data(), 0, static_cast<size_t>(batch_rows * h) * sizeof(float));
  std::vector<RowGradient> gradients;
  std::vector<ops::VocabularyGradientRow> op_rows;
  for (int64_t begin = 0; begin < total; begin += kBlockRows) {
    const int64_t end = std::min(total, begin + kBlockRows);
    const int64_t n = end - begin;
    LOCKSTEP_RETURN_IF_ERROR(
        block_logits(context, hidden, rows, begin, end, scale, in.log_probs, in.entropies));
    gradients.assign(static_cast<size_t>(n), {});
    LOCKSTEP_RETURN_IF_ERROR(in.gradient(begin, end, gradients.data()));
    op_rows.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const size_t k = static_cast<size_t>(i);
      op_rows[k] = {rows[static_cast<size_t>(begin + i)].target, gradients[k].dlogp, gradients[k].dent};
    }
    ops::vocabulary_gradient_cpu(context, logits_.data(), vocab, n, vocab, scale, inverse_temperature,
                                 sums_.data(), op_rows.data());
    image->add_matrix(context, table.head(), logits_.data(), vocab, normed_.data(), h, vocab, h,
                      slice_leaves(*in.loss_leaves, begin, end));
    d_normed_.ensure(n * h);
    ops::matmul_input_gradient_cpu(context, logits_.data(), vocab, network_.at(table.head()), n, vocab, h,
                                   d_normed_.data(), h);
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(dy_.data() + rows[static_cast<size_t>(begin + i)].row * h, d_normed_.data() + i * h,
                  static_cast<size_t>(h) * sizeof(float));
    }
  }
  // The final norm over all rows: those without loss have dy = 0, which adds +0 everywhere.
  inverse_rms_.ensure(batch_rows);
  normed_.ensure(batch_rows * h);
  network_.final_norm(context, hidden, batch_rows, normed_.data(), inverse_rms_.data());
  image->add_gain(context, table.final_norm(), dy_.data(), hidden, inverse_rms_.data(), h, in.batch->samples);
  std::memset(dh, 0, static_cast<size_t>(batch_rows * h) * sizeof(float));
  ops::rms_norm_backward_cpu(context, dy_.data(), hidden, network_.at(table.final_norm()),
                             inverse_rms_.data(), batch_rows, h, dh);
  return ok_status();
}

}  // namespace lockstep::model
