// SPDX-License-Identifier: Apache-2.0
// The scheduler over a decoder whose next token is a hash of all tokens that it finds in the pages: a wrong
// page, position, input or draw changes what is drawn.
#include "rollout/engine.h"

#include <gtest/gtest.h>

#include <set>

#include "numerics/constants.h"

namespace lockstep::rollout {
namespace {

constexpr int64_t kPage = numerics::kKeyBlock;
constexpr int32_t kVocab = 97;

struct Trouble {
  uint64_t ordinal = 0;
  uint32_t position = 0;  // of the token that can not be drawn; 0: none
  bool score = false;     // an error of the step, not of a logit
};

class HashDecoder : public model::Decoder {
 public:
  HashDecoder(const Trouble* trouble, std::set<int64_t>* asked) : trouble_(*trouble), asked_(asked) {}
  void ensure_pages(int64_t count) override { pages_.resize(static_cast<size_t>(count) * kPage, -1); }
  void clear_page(int32_t page) override { std::fill_n(pages_.begin() + page * kPage, kPage, -1); }
  void copy_page(int32_t from, int32_t to) override {
    std::copy_n(pages_.begin() + from * kPage, kPage, pages_.begin() + to * kPage);
  }
  Status step(const cpu::Context& /*context*/, const model::DecodeBatch& batch,
              const ops::SamplingSettings& /*sampling*/, std::vector<model::DrawnToken>* drawn) override {
    drawn->clear();
    for (const model::DecodeRun& run : batch.runs) {
      for (int64_t r = 0; r < run.rows; ++r) {
        const auto row = static_cast<size_t>(run.first_row + r);
        EXPECT_EQ(batch.positions[row], run.first_position + r);
        at(run, run.first_position + r) = batch.ids[row];
      }
      const int64_t last = run.first_row + run.rows - 1;
      for (const model::DecodeDraw& d : batch.draws) {
        if (d.row != last) continue;
        EXPECT_EQ(d.position, run.first_position + run.rows);
        if (d.ordinal == trouble_.ordinal && d.position == trouble_.position && trouble_.score)
          return stopped("a score of {}", d.ordinal);
        drawn->push_back(next(run, d));
      }
    }
    return ok_status();
  }
  Status steps(const cpu::Context& context, const model::DecodeBatch& batch, int64_t n,
               const ops::SamplingSettings& sampling, std::vector<model::DrawnToken>* drawn) override {
    asked_->insert(n);
    for (size_t i = 0; i < batch.runs.size(); ++i) {
      EXPECT_EQ(batch.runs[i].rows, 1);
      EXPECT_EQ(batch.draws[i].row, static_cast<int64_t>(i));
      EXPECT_GE(static_cast<int64_t>(batch.runs[i].pages.size()) * kPage, batch.runs[i].first_position + n);
    }
    return Decoder::steps(context, batch, n, sampling, drawn);
  }

 private:
  int32_t& at(const model::DecodeRun& run, int64_t position) {
    return pages_[static_cast<size_t>(run.pages[static_cast<size_t>(position / kPage)] * kPage +
                                      position % kPage)];
  }
  model::DrawnToken next(const model::DecodeRun& run, const model::DecodeDraw& d) {
    if (d.ordinal == trouble_.ordinal && d.position == trouble_.position) return {};
    uint64_t hash = d.bits();
    for (int64_t p = 0; p < run.first_position + run.rows; ++p)
      hash = (hash ^ static_cast<uint64_t>(at(run, p))) * 0x9E3779B97F4A7C15U;
    return {static_cast<int32_t>((hash >> 40) % kVocab), static_cast<float>(hash >> 44)};
  }

  const Trouble trouble_;
  std::set<int64_t>* asked_;
  std::vector<int32_t> pages_;
};

model::ModelConfig shape() {
  model::ModelConfig c;
  c.layers = c.heads = c.kv_heads = 1;
  c.hidden = c.intermediate = c.head_size = 2;
  c.vocab = kVocab;
  c.max_positions = 4096;
  return c;
}

class HashModel : public model::Model {
 public:
  explicit HashModel(Trouble trouble = {})
      : Model(shape(), model::ParameterTable(shape())), trouble_(trouble) {}
  model::Profile profile() const override { return model::Profile::kFp32; }
  float* masters() override { return nullptr; }
  const float* masters() const override { return nullptr; }
  void prepare(const cpu::Context& /*context*/, int64_t /*positions*/) override {}
  DType weight_type() const override { return DType::kF32; }
  const void* weights(int64_t /*offset*/) const override { return nullptr; }
  model::NamedDigests weight_digests(const cpu::Context& /*context*/) const override { return {}; }
  std::unique_ptr<model::Decoder> make_decoder() const override {
    return std::make_unique<HashDecoder>(&trouble_, &asked);
  }
  std::unique_ptr<model::Learner> make_learner(model::OptimizerState* /*state*/,
                                               bool /*recompute*/) override {
    return nullptr;
  }
  mutable std::set<int64_t> asked;  // numbers of steps

 private:
  Trouble trouble_;
};

std::vector<Request> requests() {
  std::vector<Request> out;
  for (uint64_t ordinal = 0; ordinal < 5; ++ordinal) {
    for (uint32_t sample = 0; sample < 3; ++sample) {
      Request r;
      for (uint64_t i = 0; i < 1 + 37 * ordinal; ++i)
        r.prompt.push_back(static_cast<int32_t>((ordinal * 31 + i * i) % kVocab));
      r.ordinal = ordinal;
      r.sample_index = sample;
      out.push_back(r);
    }
  }
  return out;
}

GenerationSettings settings() {
  GenerationSettings s;
  s.sampling.max_new_tokens = 150;
  s.sampling.stop = {"ab", "xyx"};
  s.end_ids = {13};
  s.sampleable = kVocab;
  s.token_bytes = [](int32_t id) { return std::string(1, static_cast<char>('a' + id % 26)); };
  return s;
}

Result<std::vector<Completion>> generate(const HashModel& model, const EngineConfig& config,
                                         const GenerationSettings& s = settings()) {
  const cpu::Context context(1, cpu::Isa::kScalar);
  return Engine(model, config).generate(context, requests(), s);
}

void expect_same(const std::vector<Completion>& want, const std::vector<Completion>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(want[i].tokens, got[i].tokens) << i;
    EXPECT_EQ(want[i].log_probs, got[i].log_probs) << i;
    EXPECT_EQ(want[i].finish, got[i].finish) << i;
  }
}

EngineConfig with_steps(int64_t n) {
  EngineConfig config;
  config.decode_steps = n;
  return config;
}

TEST(Engine, StepsWithoutTheSchedulerChangeNothing) {
  for (const bool ends : {true, false}) {
    GenerationSettings s = settings();
    if (!ends) {
      s.end_ids.clear();
      s.sampling.stop.clear();
    }
    const HashModel model;
    const auto want = generate(model, with_steps(1), s);
    ASSERT_TRUE(want.ok());
    EXPECT_EQ(model.asked, std::set<int64_t>{1});
    size_t stopped_early = 0;
    for (const Completion& c : want.value()) stopped_early += c.finish == FinishReason::kStop ? 1U : 0U;
    EXPECT_EQ(stopped_early > 10, ends);
    for (const int64_t n : {2, 3, 8, 16, 64}) {
      for (const int64_t running : {1, 4, 64}) {
        for (const int64_t pool : {0, 384, 512, 1024}) {
          const HashModel other;
          EngineConfig config = with_steps(n);
          config.max_running_requests = running;
          config.max_total_tokens = pool;
          config.prefix_cache = n != 3;
          const auto got = generate(other, config, s);
          ASSERT_TRUE(got.ok()) << got.status().message();
          expect_same(want.value(), got.value());
          const bool free = running == 64 && pool == 0;
          EXPECT_TRUE(!free || other.asked.count(n) == 1) << n;
        }
      }
    }
  }
}

// What goes wrong is reported as one step at a time would: by the sample that is still there, or not at all.
TEST(Engine, TroubleIsThatOfOneStepAtATime) {
  const HashModel model;
  const auto good = generate(model, with_steps(1));
  ASSERT_TRUE(good.ok());
  for (const bool score : {false, true}) {
    for (uint32_t position = 1; position < 70; ++position) {
      const Trouble trouble{0, position, score};
      const auto want = generate(HashModel(trouble), with_steps(1));
      for (const int64_t n : {2, 8, 64}) {
        const auto got = generate(HashModel(trouble), with_steps(n));
        ASSERT_EQ(want.ok(), got.ok()) << position;
        if (want.ok()) {
          expect_same(good.value(), got.value());
        } else {
          EXPECT_EQ(want.status().message(), got.status().message());
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::rollout
