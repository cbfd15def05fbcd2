// SPDX-License-Identifier: Apache-2.0
// Learner on the GPU: activations, the head over the rows that carry loss, the gradient image, AdamW and the
// digests on the device. Only log-probs, entropies and their derivatives pass through the host, a block of
// loss rows at a time.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "model/cuda/cuda_training_pass.h"
#include "model/cuda/device_digests.h"
#include "model/model.h"
#include "ops/tensor_sum/tensor_sum_cuda.h"

namespace lockstep::model {

// Where the learner's masters are; the model implements it.
class DeviceMasters {
 public:
  virtual ~DeviceMasters() = default;
  virtual float* device_masters() = 0;
  virtual void weights_moved() = 0;  // host copies are old
};

template <class E>
class CudaLearner : public Learner {
 public:
  using Ops = TensorOps<E>;
  static constexpr bool kRounded = sizeof(E) == 2;

  CudaLearner(CudaNetwork<E>* network, DeviceMasters* masters, OptimizerState* state, bool recompute)
      : network_(*network),
        mutable_network_(network),
        masters_(masters),
        device_(network->device()),
        table_(network->table()),
        state_(state),
        pass_(*network, recompute),
        fault_(2) {
    if (state != nullptr && !state->m.empty()) place_state();
  }

  int64_t row_pad() const override { return kRounded ? numerics::kTokenPad : 1; }

  void begin(const cpu::Context& /*context*/, const UpdateShape& shape) override {
    if (!image_) image_ = std::make_unique<CudaGradient>(device_, table_);
    pass_.reserve(shape.rows, true);
    reserve_head(shape.rows, true);
    image_->begin(shape.leaves, shape.tokens);
  }

  Status micro_batch(const cpu::Context& /*context*/, const MicroBatchWork& work) override {
    const std::vector<Block> blocks = blocks_of(*work.rows, work.slots, *work.loss_leaves);
    Head head;
    reserve_head(work.batch->rows(), true);
    const DeviceBatch batch =
        stage(*work.batch, *work.rows, work.slots, work.input_leaves, work.loss_leaves, blocks, &head);
    const E* hidden = forward(batch);
    gather(hidden, head);
    work.log_probs->resize(work.rows->size());
    work.entropies->resize(work.rows->size());
    const float scale = ops::vocabulary_scale(work.temperature);
    if (work.whole && blocks.size() > 1) {
      for (const Block& block : blocks)
        LOCKSTEP_RETURN_IF_ERROR(
            block_log_probs(block, head, *work.rows, scale, work.log_probs, work.entropies));
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(
          block_log_probs(blocks[i], head, *work.rows, scale, work.log_probs, work.entropies));
      LOCKSTEP_RETURN_IF_ERROR(block_gradient(blocks[i], head.leaves[i], work, scale));
    }
    finish_head(batch, hidden, head);
    pass_.backward(batch, head.input_leaves, dh_.data(), image_.get(), fault_.data());
    return forward_status();
  }

  Status gradient_status() const override { return image_->status(); }
  double gradient_squares(const cpu::Context& /*context*/) const override {
    if (sum_slices_.size() == 0) {
      ops::TensorSumTable sums;
      for (const Parameter& p : table_.by_name()) ops::add_tensor(&sums, p.offset, p.size);
      sum_blocks_ = sums.blocks;
      upload_table(sums.slices, &sum_slices_);
      sum_.ensure(1);
    }
    ops::gradient_sum_of_squares_cuda(device_, image_->data(), sum_slices_.data(), sum_slices_.size(),
                                      sum_blocks_, sum_.data(), nullptr);
    double out = 0;
    sum_.download(device_, &out, 1);
    return out;
  }
  NamedDigests gradient_digests(const cpu::Context& /*context*/) const override {
    NamedDigests out;
    append_digests(image_->data(), "", &image_digests_, &out);
    return out;
  }
  const int64_t* gradient_image() override {
    host_image_.ensure(table_.arena_size());
    cuda::copy_to_host(device_, host_image_.data(), image_->data(), table_.arena_size() * 8);
    return host_image_.data();
  }

  void apply(const cpu::Context& /*context*/, const ops::AdamWFactors& factors) override {
    if (adamw_slices_.size() == 0) {
      std::vector<ops::AdamWSlice> slices;
      for (const Parameter& p : table_.by_name()) slices.push_back({p.offset, p.size, p.decays() ? 1 : 0});
      std::sort(slices.begin(), slices.end(),
                [](const auto& a, const auto& b) { return a.offset < b.offset; });
      upload_table(slices, &adamw_slices_);
    }
    const int64_t count = adamw_slices_.size();
    if constexpr (kRounded) {
      ops::adamw_bf16_cuda(device_, factors, adamw_slices_.data(), count, table_.arena_size(), image_->data(),
                           m_.data(), v_.data(), masters_->device_masters(), mutable_network_->arena());
    } else {
      ops::adamw_fp32_cuda(device_, factors, adamw_slices_.data(), count, table_.arena_size(), image_->data(),
                           m_.data(), v_.data(), masters_->device_masters());
    }
    device_.synchronize();
    masters_->weights_moved();
    state_on_device_is_newer_ = true;
  }

  NamedDigests state_digests(const cpu::Context& /*context*/) const override {
    NamedDigests out;
    append_digests(m_.data(), "exp_avg.", &m_digests_, &out);
    append_digests(v_.data(), "exp_avg_sq.", &v_digests_, &out);
    if (kRounded) append_digests(masters_->device_masters(), "master.", &master_digests_, &out);
    return out;
  }
  void bring_state() override {
    if (!state_on_device_is_newer_) return;
    m_.download(device_, state_->m.data(), table_.arena_size());
    v_.download(device_, state_->v.data(), table_.arena_size());
    state_on_device_is_newer_ = false;
  }

  Status log_probs(const cpu::Context& /*context*/, const MicroBatch& micro_batch,
                   const std::vector<LossRow>& rows, double temperature, std::vector<float>* log_probs,
                   std::vector<double>* entropies) override {
    const int64_t slots = rows.empty() ? 0 : rows.back().slot + 1;
    const std::vector<Block> blocks = blocks_of(rows, slots, {});
    Head head;
    reserve_head(micro_batch.rows(), false);
    const DeviceBatch batch = stage(micro_batch, rows, slots, nullptr, nullptr, blocks, &head);
    gather(forward(batch), head);
    log_probs->resize(rows.size());
    entropies->resize(rows.size());
    const float scale = ops::vocabulary_scale(temperature);
    for (const Block& block : blocks)
      LOCKSTEP_RETURN_IF_ERROR(block_log_probs(block, head, rows, scale, log_probs, entropies));
    return forward_status();
  }

  Status logits(const cpu::Context& /*context*/, const MicroBatch& micro_batch, float* out) override {
    const ModelConfig& config = network_.config();
    Head head;
    const DeviceBatch batch = stage(micro_batch, {}, 0, nullptr, nullptr, {}, &head);
    const E* hidden = forward(batch);
    const int64_t rows = batch.rows.rows;
    normed_.ensure(rows * config.hidden);
    inverse_rms_.ensure(rows);
    Ops::norm(device_, hidden, network_.at(network_.table().final_norm()), config.rms_eps, rows,
              config.hidden, normed_.data(), inverse_rms_.data());
    const int64_t ld = logits_stride(config);
    logits_.ensure(HeadElements(config, rows).logits, "logits");
    for (int64_t begin = 0; begin < rows; begin += kLogitsRows) {
      const int64_t n = std::min(kLogitsRows, rows - begin);
      Ops::product(device_, normed_.data() + begin * config.hidden, network_.at(table_.head()), n,
                   config.vocab, config.hidden, logits_.data(), ld);
      Buffer<float> host(n * ld);
      logits_.download(device_, host.data(), n * ld);
      for (int64_t r = 0; r < n; ++r)
        std::copy_n(host.data() + r * ld, config.vocab, out + (begin + r) * config.vocab);
    }
    return forward_status();
  }

 private:
  // Loss rows [begin, end) and their slots.
  struct Block {
    int64_t begin, end, first_slot, slots;
  };
  // Arrays of the head on the device.
  struct Head {
    int64_t slots = 0;
    const int32_t* slot_row = nullptr;  // [slots] row of the micro-batch; of padding -1
    const int32_t* row_slot = nullptr;  // [rows] slot; -1: no loss
    const int32_t* targets = nullptr;   // [slots]
    DeviceLeaves input_leaves;
    std::vector<DeviceLeaves> leaves;  // of each block
  };

  // kLogitsRows slots at most each. A block ends with a leaf where it can: a leaf in two blocks has its chain
  // go through memory.
  static std::vector<Block> blocks_of(const std::vector<LossRow>& rows, int64_t slots,
                                      const std::vector<LeafRows>& leaves) {
    std::vector<Block> out;
    int64_t row = 0;
    for (int64_t slot = 0; slot < slots;) {
      int64_t end = std::min(slots, slot + kLogitsRows);
      int64_t whole = 0;  // end of the last leaf that fits
      for (const LeafRows& leaf : leaves) {
        if (leaf.end <= end) whole = leaf.end;
      }
      if (whole > slot) end = whole;
      Block block{row, row, slot, end - slot};
      while (block.end < static_cast<int64_t>(rows.size()) && rows[static_cast<size_t>(block.end)].slot < end)
        ++block.end;
      row = block.end;
      slot = end;
      out.push_back(block);
    }
    return out;
  }

  DeviceBatch stage(const MicroBatch& batch, const std::vector<LossRow>& loss_rows, int64_t slots,
                    const std::vector<LeafRows>* input_leaves, const std::vector<LeafRows>* loss_leaves,
                    const std::vector<Block>& blocks, Head* head) {
    std::vector<int32_t> ids(batch.ids.size(), -1), first, count, position, sequence;
    DeviceBatch out;
    out.rows.rows = batch.rows();
    out.rows.runs = static_cast<int64_t>(batch.samples.size());
    for (const ops::SampleRows& sample : batch.samples) {
      first.push_back(static_cast<int32_t>(sample.begin));
      count.push_back(static_cast<int32_t>(sample.end - sample.begin));
      position.push_back(0);
      sequence.push_back(static_cast<int32_t>(sequence.size()));
      std::copy(batch.ids.begin() + sample.begin, batch.ids.begin() + sample.end, ids.begin() + sample.begin);
      out.rows.max_run_rows = std::max(out.rows.max_run_rows, sample.end - sample.begin);
    }
    out.rows.max_keys = out.rows.max_run_rows;
    const std::vector<ops::VectorPiece> pieces =
        ops::vector_pieces(batch.samples.data(), static_cast<int64_t>(batch.samples.size()));
    std::vector<int32_t> slot_row(static_cast<size_t>(slots), -1), row_slot(batch.ids.size(), -1);
    std::vector<int32_t> targets(static_cast<size_t>(slots), 0);
    for (const LossRow& row : loss_rows) {
      slot_row[static_cast<size_t>(row.slot)] = static_cast<int32_t>(row.row);
      row_slot[static_cast<size_t>(row.row)] = static_cast<int32_t>(row.slot);
      targets[static_cast<size_t>(row.slot)] = row.target;
    }
    staging_.clear(device_);
    const int64_t handles[] = {staging_.add(ids),    staging_.add(batch.positions), staging_.add(first),
                               staging_.add(count),  staging_.add(position),        staging_.add(sequence),
                               staging_.add(pieces), staging_.add(slot_row),        staging_.add(row_slot),
                               staging_.add(targets)};
    std::pair<int64_t, int64_t> input_handles{};
    std::vector<std::vector<LeafRows>> slices;
    std::vector<std::pair<int64_t, int64_t>> slice_handles;
    if (input_leaves != nullptr) {
      input_handles = CudaGradient::stage(*input_leaves, &staging_);
      for (const Block& block : blocks) {
        slices.push_back(slice_leaves(*loss_leaves, block.first_slot, block.first_slot + block.slots));
        slice_handles.push_back(CudaGradient::stage(slices.back(), &staging_));
      }
    }
    staging_.send(device_);
    out.rows.ids = staging_.at<int32_t>(handles[0]);
    out.rows.positions = staging_.at<int32_t>(handles[1]);
    out.rows.run_first_row = staging_.at<int32_t>(handles[2]);
    out.rows.run_rows = staging_.at<int32_t>(handles[3]);
    out.rows.run_position = staging_.at<int32_t>(handles[4]);
    out.rows.run_sequence = staging_.at<int32_t>(handles[5]);
    out.pieces = staging_.at<ops::VectorPiece>(handles[6]);
    out.n_pieces = static_cast<int64_t>(pieces.size());
    head->slots = slots;
    head->slot_row = staging_.at<int32_t>(handles[7]);
    head->row_slot = staging_.at<int32_t>(handles[8]);
    head->targets = staging_.at<int32_t>(handles[9]);
    if (input_leaves != nullptr) {
      head->input_leaves = CudaGradient::staged(*input_leaves, staging_, input_handles);
      for (size_t i = 0; i < slices.size(); ++i)
        head->leaves.push_back(CudaGradient::staged(slices[i], staging_, slice_handles[i]));
    }
    return out;
  }

  const E* forward(const DeviceBatch& batch) {
    cuda::fill(device_, fault_.data(), 0xFF, fault_.size_bytes());
    return pass_.forward(batch, fault_.data());
  }

  Status forward_status() const {
    unsigned long long faults[2];
    fault_.download(device_, faults, 2);
    if (faults[0] != cuda::kNoFault) {
      return stopped("layer {}: an attention score is NaN or at least 2^21; the weights have diverged",
                     faults[0] >> kFaultLayerShift);
    }
    if (faults[1] != cuda::kNoFault)
      return stopped("a logit is NaN or infinite in training; the weights have diverged");
    return ok_status();
  }

  // The final norm of the rows that carry loss, in their slots.
  void gather(const E* hidden, const Head& head) {
    const ModelConfig& config = network_.config();
    if (head.slots == 0) return;
    Ops::embedding(device_, hidden, head.slot_row, head.slots, config.hidden, gathered_.data());
    Ops::norm(device_, gathered_.data(), network_.at(table_.final_norm()), config.rms_eps, head.slots,
              config.hidden, slots_.data(), nullptr);
  }

  Status block_log_probs(const Block& block, const Head& head, const std::vector<LossRow>& rows, float scale,
                         std::vector<float>* log_probs, std::vector<double>* entropies) {
    const ModelConfig& config = network_.config();
    const int64_t ld = logits_stride(config);
    Ops::product(device_, slots_.data() + block.first_slot * config.hidden, network_.at(table_.head()),
                 block.slots, config.vocab, config.hidden, logits_.data(), ld);
    ops::vocabulary_sums_cuda(device_, logits_.data(), ld, block.slots, config.vocab, scale, sums_.data());
    ops::vocabulary_log_probs_cuda(device_, logits_.data(), ld, block.slots, scale, sums_.data(),
                                   head.targets + block.first_slot, log_probs_.data(), entropies_.data(),
                                   {fault_.data() + 1, 0});
    std::vector<float> p(static_cast<size_t>(block.slots));
    std::vector<double> e(static_cast<size_t>(block.slots));
    log_probs_.download(device_, p.data(), block.slots);
    entropies_.download(device_, e.data(), block.slots);
    LOCKSTEP_RETURN_IF_ERROR(forward_status());
    for (int64_t r = block.begin; r < block.end; ++r) {
      const auto slot = static_cast<size_t>(rows[static_cast<size_t>(r)].slot - block.first_slot);
      (*log_probs)[static_cast<size_t>(r)] = p[slot];
      (*entropies)[static_cast<size_t>(r)] = e[slot];
    }
    return ok_status();
  }

  // After block_log_probs of the same block: derivatives from the caller, gradient of the head and of its
  // input.
  Status block_gradient(const Block& block, const DeviceLeaves& leaves, const MicroBatchWork& work,
                        float scale) {
    const ModelConfig& config = network_.config();
    const int64_t ld = logits_stride(config);
    std::vector<RowGradient> gradients(static_cast<size_t>(block.end - block.begin));
    LOCKSTEP_RETURN_IF_ERROR(work.gradient(block.begin, block.end, gradients.data()));
    std::vector<ops::VocabularyGradientRow> rows(static_cast<size_t>(block.slots));  // of padding: all +0
    for (int64_t r = block.begin; r < block.end; ++r) {
      const LossRow& row = (*work.rows)[static_cast<size_t>(r)];
      const RowGradient& gradient = gradients[static_cast<size_t>(r - block.begin)];
      rows[static_cast<size_t>(row.slot - block.first_slot)] = {row.target, gradient.dlogp, gradient.dent};
    }
    gradient_rows_.upload(device_, rows.data(), block.slots);
    const float inverse_temperature =
        work.temperature > 0 ? static_cast<float>(1.0 / work.temperature) : 1.0F;
    Ops::vocabulary_gradient(device_, logits_.data(), ld, block.slots, config.vocab, scale,
                             inverse_temperature, sums_.data(), gradient_rows_.data(), gradient_.data());
    const E* dy = nullptr;
    if constexpr (kRounded) {
      dy = gradient_.data();
    } else {
      dy = logits_.data();
    }
    const int64_t h = config.hidden;
    image_->add_matrix(table_.head(), dy, ld, slots_.data() + block.first_slot * h, block.slots, config.vocab,
                       h, leaves);
    Ops::input_gradient(device_, dy, ld, network_.at(table_.head()), block.slots, config.vocab, h,
                        d_slots_.data() + block.first_slot * h);
    device_.synchronize();  // `rows` has been read
    return ok_status();
  }

  // The final norm over all rows: those without loss have dy = 0, which adds +0 everywhere.
  void finish_head(const DeviceBatch& batch, const E* hidden, const Head& head) {
    const ModelConfig& config = network_.config();
    const int64_t rows = batch.rows.rows;
    const int64_t h = config.hidden;
    Ops::embedding(device_, d_slots_.data(), head.row_slot, rows, h, dy_.data());
    Ops::norm(device_, hidden, network_.at(table_.final_norm()), config.rms_eps, rows, h, normed_.data(),
              inverse_rms_.data());
    image_->add_gain(table_.final_norm(), dy_.data(), hidden, inverse_rms_.data(), h, batch.pieces,
                     batch.n_pieces);
    cuda::fill(device_, dh_.data(), 0, rows * h * static_cast<int64_t>(sizeof(E)));
    Ops::norm_backward(device_, dy_.data(), hidden, network_.at(table_.final_norm()), inverse_rms_.data(),
                       rows, h, dh_.data());
  }

  void reserve_head(int64_t rows, bool backward) {
    const HeadElements elements(network_.config(), rows);
    gathered_.ensure(elements.hidden, "the residual stream");
    slots_.ensure(elements.hidden, "the residual stream");
    logits_.ensure(elements.logits, "logits");
    sums_.ensure(elements.block, "logits");
    log_probs_.ensure(elements.block, "logits");
    entropies_.ensure(elements.block, "logits");
    if (!backward) return;
    d_slots_.ensure(elements.hidden, "the residual stream");
    dy_.ensure(elements.hidden, "the residual stream");
    dh_.ensure(elements.hidden, "the residual stream");
    normed_.ensure(elements.hidden, "the residual stream");
    inverse_rms_.ensure(elements.rows, "the residual stream");
    gradient_rows_.ensure(elements.block, "logits");
    if (kRounded) gradient_.ensure(elements.logits, "gradients of logits");
  }

  // What an update moves, on the device from the start: no update is computed that then has no room.
  void place_state() {
    image_ = std::make_unique<CudaGradient>(device_, table_);
    m_ = cuda::DeviceBuffer<float>(table_.arena_size(), "the first moments");
    v_ = cuda::DeviceBuffer<float>(table_.arena_size(), "the second moments");
    if (state_->step == 0) {  // nothing has moved yet
      m_.zero(device_);
      v_.zero(device_);
      state_on_device_is_newer_ = true;
    } else {
      m_.upload(device_, state_->m.data(), table_.arena_size());
      v_.upload(device_, state_->v.data(), table_.arena_size());
    }
    (void)masters_->device_masters();
    device_.synchronize();
  }

  template <class T>
  void upload_table(const std::vector<T>& table, cuda::DeviceBuffer<T>* out) const {
    *out = cuda::DeviceBuffer<T>(static_cast<int64_t>(table.size()), "tables of parameters");
    out->upload(device_, table.data(), out->size());
    device_.synchronize();  // `table` has been read
  }
  template <class T>
  void append_digests(const T* arena, const char* prefix, std::optional<DeviceDigests>* digests,
                      NamedDigests* out) const {
    if (!*digests) digests->emplace(device_, table_, arena);
    (*digests)->append(prefix, out);
  }

  const CudaNetwork<E>& network_;
  CudaNetwork<E>* mutable_network_;
  DeviceMasters* masters_;
  const cuda::Context& device_;
  const ParameterTable& table_;
  OptimizerState* state_;
  CudaTrainingPass<E> pass_;
  std::unique_ptr<CudaGradient> image_;
  cuda::Staging staging_;
  cuda::DeviceBuffer<float> m_, v_;
  bool state_on_device_is_newer_ = false;
  cuda::DeviceBuffer<E> gathered_, slots_, d_slots_, gradient_, dy_, dh_, normed_;
  cuda::DeviceBuffer<float> logits_, log_probs_, inverse_rms_;
  cuda::DeviceBuffer<double> entropies_;
  cuda::DeviceBuffer<ops::VocabularySums> sums_;
  cuda::DeviceBuffer<ops::VocabularyGradientRow> gradient_rows_;
  // Tables of the parameters, built once.
  cuda::DeviceBuffer<ops::AdamWSlice> adamw_slices_;
  mutable cuda::DeviceBuffer<ops::TensorSumSlice> sum_slices_;
  mutable int64_t sum_blocks_ = 0;
  mutable cuda::DeviceBuffer<double> sum_;
  mutable std::optional<DeviceDigests> image_digests_, m_digests_, v_digests_, master_digests_;
  cuda::DeviceBuffer<unsigned long long> fault_;  // scores; logits
  Buffer<int64_t> host_image_;
};

}  // namespace lockstep::model
