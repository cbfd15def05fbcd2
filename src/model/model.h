// SPDX-License-Identifier: Apache-2.0
// A model with its tensors, wherever they are. The scheduler of the engine, the plan of an update and the
// loss are written once against these interfaces; a profile and a device implement them (cpu/, cuda/). Calls
// are made from one thread. What is a pointer or a vector here is in host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/status.h"
#include "device/cpu/context.h"
#include "model/config.h"
#include "model/digests.h"
#include "model/leaf_rows.h"
#include "model/parameters.h"
#include "numerics/philox.h"
#include "ops/adamw/adamw.h"
#include "ops/vector_gradient/vector_gradient.h"
#include "ops/vocabulary/vocabulary.h"

namespace lockstep::model {

// docs/numerics.md, Profiles. Part of a run's identity.
enum class Profile { kFp32, kBf16 };
const char* profile_name(Profile profile);
Result<Profile> profile_from_name(const std::string& name);

// Rows of one sequence at consecutive positions; pages[i] holds keys and values of positions [64 i, 64 i +
// 64).
struct DecodeRun {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  std::vector<int32_t> pages;  // [ceil((first_position + rows)/64)]
};
// The token after `row` is drawn with numerics::draw of these.
struct DecodeDraw {
  int64_t row = 0;
  uint64_t seed = 0;
  numerics::Purpose purpose = numerics::Purpose::kRollout;
  uint64_t ordinal = 0;
  uint32_t sample = 0;
  uint32_t position = 0;
  uint64_t bits() const { return numerics::draw(seed, purpose, ordinal, sample, position); }
};
struct DecodeBatch {
  std::vector<int32_t> ids;        // [rows]
  std::vector<int32_t> positions;  // [rows]
  std::vector<DecodeRun> runs;     // cover all rows, ascending
  std::vector<DecodeDraw> draws;
};
struct DrawnToken {
  int32_t token = -1;  // -1: a logit is NaN or infinite
  float log_prob = 0;
};

// Tensors of a rollout engine: pages of keys and values, and one step over a batch of rows.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Pages [0, count) exist from now on; contents of those that did are kept.
  virtual void ensure_pages(int64_t count) = 0;
  virtual void clear_page(int32_t page) = 0;
  virtual void copy_page(int32_t from, int32_t to) = 0;
  // A hint: pages [0, count) will be needed before long. Contents of all pages may be lost.
  virtual void reserve_pages(int64_t /*count*/) {}
  // Writes keys and values of the rows, then draws. Errors (kStopped): an attention score out of range.
  virtual Status step(const cpu::Context& context, const DecodeBatch& batch,
                      const ops::SamplingSettings& sampling, std::vector<DrawnToken>* drawn) = 0;
  // n steps in a row, each token the input of the next. Every run of the batch is one row, draw i is that of
  // row i, and pages are there for n positions. drawn: of k steps, k * rows tokens, 1 <= k <= n; k < n where
  // a later step met an error or a bad logit: asked again from there, it is the first step and is reported.
  virtual Status steps(const cpu::Context& context, const DecodeBatch& batch, int64_t n,
                       const ops::SamplingSettings& sampling, std::vector<DrawnToken>* drawn);
  // The n that is fastest.
  virtual int64_t preferred_steps() const { return 1; }
};
// The batch of the next step of the same rows.
void advance(const DrawnToken* drawn, DecodeBatch* batch);

// Whole samples side by side. Between samples there may be rows of padding, which belong to none.
struct MicroBatch {
  std::vector<int32_t> ids;              // [rows] inputs; of padding: 0
  std::vector<int32_t> positions;        // [rows] 0, 1, ... of each sample; of padding: 0
  std::vector<ops::SampleRows> samples;  // rows of each sample
  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  // n input tokens, then padding to a multiple of `pad` rows.
  void add_sample(const int32_t* tokens, int64_t n, int64_t pad);
};

// A row that carries loss.
struct LossRow {
  int64_t row = 0;     // of the micro-batch
  int32_t target = 0;  // the token it predicts
  int64_t slot = 0;    // its row in the head's chain: loss rows of all samples, each sample padded
};
struct RowGradient {
  float dlogp = 0;
  float dent = 0;
};

struct MicroBatchWork {
  const MicroBatch* batch = nullptr;
  const std::vector<LossRow>* rows = nullptr;           // slots ascending
  int64_t slots = 0;                                    // with padding
  const std::vector<LeafRows>* input_leaves = nullptr;  // of the rows of the micro-batch
  const std::vector<LeafRows>* loss_leaves = nullptr;   // of the slots
  double temperature = 1;
  bool whole =
      false;  // all log-probs are known before the first gradient is asked for (a loss over sequences)
  std::vector<float>* log_probs = nullptr;   // [rows]
  std::vector<double>* entropies = nullptr;  // [rows], nats
  // Derivatives of the loss for loss rows [begin, end), whose log-probs, and those of all rows before, are
  // there.
  std::function<Status(int64_t begin, int64_t end, RowGradient* out)> gradient;
};

// Adam's moments, arenas like the weights.
struct OptimizerState {
  Buffer<float> m, v;
  int64_t step = 0;  // updates done; at 0 a GPU's learner takes m and v for zeros, whatever they hold
};

// What an update will bring, before its micro-batches.
struct UpdateShape {
  int64_t leaves = 1;  // V (docs/numerics.md, Leaves)
  int64_t tokens = 0;  // T
  int64_t rows = 0;    // most rows of a micro-batch; more are allowed
};

// Tensors of training: activations, the gradient image, the update.
class Learner {
 public:
  virtual ~Learner() = default;
  // Rows of a sample are followed by padding to a multiple of this, in micro-batches, leaves and slots.
  virtual int64_t row_pad() const = 0;

  // Starts an update: the image is zero.
  virtual void begin(const cpu::Context& context, const UpdateShape& shape) = 0;
  // Forward, log-probs, derivatives, backward into the image.
  virtual Status micro_batch(const cpu::Context& context, const MicroBatchWork& work) = 0;
  // kStopped, naming the first tensor and leaf, when a gradient was NaN, infinite or out of range.
  virtual Status gradient_status() const = 0;
  // Sum of squares of the gradient, tensors by name.
  virtual double gradient_squares(const cpu::Context& context) const = 0;
  virtual NamedDigests gradient_digests(const cpu::Context& context) const = 0;
  virtual const int64_t* gradient_image() = 0;  // brought to the host if need be
  // AdamW on masters and moments; the weights follow.
  virtual void apply(const cpu::Context& context, const ops::AdamWFactors& factors) = 0;

  // Of moments ("exp_avg.", "exp_avg_sq.") and, where they are not the weights, masters ("master.").
  virtual NamedDigests state_digests(const cpu::Context& context) const = 0;
  // Makes the OptimizerState, which is in host memory, what it is: before it is saved.
  virtual void bring_state() {}

  // Log-probs and entropies of loss rows; nothing else is kept.
  virtual Status log_probs(const cpu::Context& context, const MicroBatch& batch,
                           const std::vector<LossRow>& rows, double temperature,
                           std::vector<float>* log_probs, std::vector<double>* entropies) = 0;
  // Logits [rows, V] of all rows of a micro-batch.
  virtual Status logits(const cpu::Context& context, const MicroBatch& batch, float* out) = 0;
};

class Model {
 public:
  Model(ModelConfig config, ParameterTable table) : config_(std::move(config)), table_(std::move(table)) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  virtual Profile profile() const = 0;

  // The parameters in binary32, an arena in host memory: what a checkpoint gives and an optimizer moves. Call
  // prepare() after writing it.
  virtual float* masters() = 0;
  virtual const float* masters() const = 0;
  // Makes weights and packed copies from the masters, and RoPE tables for `positions` positions.
  virtual void prepare(const cpu::Context& context, int64_t positions) = 0;

  // The weights the model computes with, as they stand in a Hugging Face folder (host memory).
  virtual DType weight_type() const = 0;
  virtual const void* weights(int64_t offset) const = 0;
  virtual NamedDigests weight_digests(const cpu::Context& context) const = 0;

  virtual std::unique_ptr<Decoder> make_decoder() const = 0;
  // state: may be null where apply() is not called. recompute: keep only layer inputs in forward.
  virtual std::unique_ptr<Learner> make_learner(OptimizerState* state, bool recompute) = 0;

 private:
  ModelConfig config_;
  ParameterTable table_;
};

// On the CPU, masters zero.
std::unique_ptr<Model> make_model(Profile profile, const ModelConfig& config);

// Where a model computes; changes no bit.
struct DeviceChoice {
  std::string device = "cpu";  // cpu, cuda, or auto: cuda where there is a GPU for the profile and shape
  int index = 0;               // of the GPU
  int sms = 0;                 // multiprocessors to use; 0: all
  bool graphs = true;          // decode steps as CUDA graphs
};
// Errors (kInvalid): cuda was asked for and is not there, or does not fit the profile or the shape.
Result<std::unique_ptr<Model>> make_model(Profile profile, const ModelConfig& config,
                                          const DeviceChoice& choice);

// What a run of this profile takes on the CPU, in bytes.
struct MemoryNeeds {
  int64_t weights = 0;      // and masters
  int64_t packed = 0;       // copies for products
  int64_t kv_page = 0;      // 64 tokens, all layers
  int64_t activations = 0;  // of `rows` rows
  int64_t logits = 0;       // of `loss_rows` rows in training
};
MemoryNeeds memory_needs(const cpu::Context& context, Profile profile, const ModelConfig& config,
                         int64_t rows, int64_t loss_rows, bool recompute);

}  // namespace lockstep::model
