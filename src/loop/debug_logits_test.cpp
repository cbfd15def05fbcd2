// SPDX-License-Identifier: Apache-2.0
// Logits, loss, gradients and greedy continuation against transformers 5.17 (float32, CPU, eager) on two
// small models.
#include "loop/debug_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "same_bits.h"

namespace lockstep::loop {
namespace {

constexpr int64_t kLogitStride = 8;  // the expected file holds every 8th position

std::vector<float> read_floats(const checkpoint::SafetensorsFile& file, const std::string& name) {
  std::vector<float> out(static_cast<size_t>(file.find(name)->elements()));
  EXPECT_TRUE(file.read_f32(name, out.data()).ok());
  return out;
}

double norm(const std::vector<float>& a, const std::vector<float>* b = nullptr) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - (b != nullptr ? static_cast<double>((*b)[i]) : 0.0);
    sum += d * d;
  }
  return std::sqrt(sum);
}

class AgainstTransformers : public ::testing::TestWithParam<const char*> {};

// Tolerances: both sides add some thousands of binary32 terms in different orders; a chain of n terms is off
// by about n/2 ulp at most and sqrt(n) typically, so 1e-4 of the largest logit leaves a factor of ten, 1e-3
// of a gradient's norm too.
TEST_P(AgainstTransformers, LogitsLossGradientsAndGreedy) {
  const std::string folder = testing::large_test_data(std::string("hf_tiny/") + GetParam());
  DebugLogitsConfig config;
  config.hf_checkpoint = folder;
  config.tokens = folder + "/expected.safetensors";
  config.out = ::testing::TempDir() + "lockstep_logits_" + GetParam() + ".safetensors";
  config.grads = true;
  const auto want = checkpoint::SafetensorsFile::open(config.tokens);
  ASSERT_TRUE(want.ok()) << want.status().message();
  const int64_t total = want.value().find("greedy")->elements();
  constexpr int64_t kPrompt = 20;
  config.prompt_len = kPrompt;
  config.greedy = total - kPrompt;
  const Status status = run_debug_logits(config);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto got = checkpoint::SafetensorsFile::open(config.out);
  ASSERT_TRUE(got.ok());

  const checkpoint::TensorInfo& shape = *got.value().find("logits");
  const std::vector<float> logits = read_floats(got.value(), "logits");
  const std::vector<float> expected = read_floats(want.value(), "logits");
  const int64_t positions = want.value().find("logits")->shape[1];
  const int64_t vocab = shape.shape[2];
  double largest = 0;
  double worst = 0;
  for (int64_t b = 0; b < shape.shape[0]; ++b) {
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t v = 0; v < vocab; ++v) {
        const double e = expected[static_cast<size_t>((b * positions + p) * vocab + v)];
        const double g = logits[static_cast<size_t>((b * shape.shape[1] + p * kLogitStride) * vocab + v)];
        largest = std::max(largest, std::fabs(e));
        worst = std::max(worst, std::fabs(e - g));
      }
    }
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(worst, 1e-4 * largest);
  const double loss = read_floats(want.value(), "loss")[0];
  EXPECT_LE(std::fabs(read_floats(got.value(), "loss")[0] - loss), 1e-4 * loss);
  int gradients = 0;
  for (const checkpoint::TensorInfo& info : want.value().tensors()) {
    if (info.name.rfind("grad.", 0) != 0) continue;
    ASSERT_NE(got.value().find(info.name), nullptr) << info.name;
    EXPECT_EQ(got.value().find(info.name)->shape, info.shape) << info.name;
    const std::vector<float> e = read_floats(want.value(), info.name);
    EXPECT_LE(norm(read_floats(got.value(), info.name), &e), 1e-3 * norm(e)) << info.name;
    ++gradients;
  }
  EXPECT_GT(gradients, 20);
  std::vector<char> greedy_bytes(static_cast<size_t>(got.value().find("greedy")->size_bytes));
  ASSERT_TRUE(got.value().read("greedy", greedy_bytes.data()).ok());
  const checkpoint::TensorInfo& greedy = *want.value().find("greedy");
  std::vector<char> expected_bytes(static_cast<size_t>(greedy.size_bytes));
  ASSERT_TRUE(want.value().read("greedy", expected_bytes.data()).ok());
  for (int64_t i = 0; i < total; ++i) {
    const int64_t e = greedy.dtype == DType::kI64 ? load_le<int64_t>(expected_bytes.data() + 8 * i)
                                                  : load_le<int32_t>(expected_bytes.data() + 4 * i);
    EXPECT_EQ(load_le<int32_t>(greedy_bytes.data() + 4 * i), e) << "position " << i;
  }
}

// Profile bf16 against the same binary32 values. A tensor is rounded to 2^-9 of its elements some ten times a
// layer; errors of that size that do not know of each other add up to about sqrt(10 * layers) * 2^-9, 2 % of
// the largest logit here at most; a factor of 2.5 is left. A gradient passes the layers twice.
TEST_P(AgainstTransformers, Bf16IsNear) {
  const std::string folder = testing::large_test_data(std::string("hf_tiny/") + GetParam());
  DebugLogitsConfig config;
  config.hf_checkpoint = folder;
  config.profile = model::Profile::kBf16;
  config.tokens = folder + "/expected.safetensors";
  config.out = ::testing::TempDir() + "lockstep_logits_bf16_" + GetParam() + ".safetensors";
  config.grads = true;
  const Status status = run_debug_logits(config);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto want = checkpoint::SafetensorsFile::open(config.tokens);
  const auto got = checkpoint::SafetensorsFile::open(config.out);
  ASSERT_TRUE(got.ok());
  const checkpoint::TensorInfo& shape = *got.value().find("logits");
  const std::vector<float> logits = read_floats(got.value(), "logits");
  const std::vector<float> expected = read_floats(want.value(), "logits");
  const int64_t positions = want.value().find("logits")->shape[1];
  const int64_t vocab = shape.shape[2];
  double largest = 0;
  double worst = 0;
  for (int64_t b = 0; b < shape.shape[0]; ++b) {
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t v = 0; v < vocab; ++v) {
        const double e = expected[static_cast<size_t>((b * positions + p) * vocab + v)];
        const double g = logits[static_cast<size_t>((b * shape.shape[1] + p * kLogitStride) * vocab + v)];
        largest = std::max(largest, std::fabs(e));
        worst = std::max(worst, std::fabs(e - g));
      }
    }
  }
  EXPECT_GT(worst, 0);
  EXPECT_LE(worst, 0.05 * largest);
  const double loss = read_floats(want.value(), "loss")[0];
  EXPECT_LE(std::fabs(read_floats(got.value(), "loss")[0] - loss), 0.02 * loss);
  for (const checkpoint::TensorInfo& info : want.value().tensors()) {
    if (info.name.rfind("grad.", 0) != 0) continue;
    const std::vector<float> e = read_floats(want.value(), info.name);
    // A key's bias moves all scores of a query nearly alike, and softmax does not see that: its gradient is a
    // sum that cancels, of terms as large as those of the query's bias.
    std::string scale = info.name;
    const size_t key = scale.find("k_proj.bias");
    if (key != std::string::npos) scale[key] = 'q';
    EXPECT_LE(norm(read_floats(got.value(), info.name), &e), 0.1 * norm(read_floats(want.value(), scale)))
        << info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTransformers,
                         ::testing::Values("qwen2_tied", "qwen2_untied_bf16_sharded"));

TEST(UnsupportedModels, AreRefusedByName) {
  for (const char* model : {"llama3_rope", "qwen3_headdim"}) {
    DebugLogitsConfig config;
    config.hf_checkpoint = testing::large_test_data(std::string("hf_tiny/") + model);
    config.tokens = "none";
    config.out = "none";
    const Status status = run_debug_logits(config);
    EXPECT_EQ(status.code(), StatusCode::kInvalid);
    EXPECT_NE(status.message().find("architectures"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace lockstep::loop
