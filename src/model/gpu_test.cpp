// SPDX-License-Identifier: Apache-2.0
#include "model/gpu.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::model {
namespace {

ModelConfig shape(int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads,
                  int64_t head_size, int64_t vocab, bool tied) {
  ModelConfig config;
  config.layers = layers;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_size = head_size;
  config.vocab = vocab;
  config.max_positions = 32768;
  config.tied = tied;
  return config;
}
// Of the Qwen2.5 models.
ModelConfig half_billion() {
  return shape(24, 896, 4864, 14, 2, 64, 151936, true);
}
ModelConfig three_billion() {
  return shape(36, 2048, 11008, 16, 2, 128, 151936, true);
}
ModelConfig seven_billion() {
  return shape(28, 3584, 18944, 28, 4, 128, 152064, false);
}

// 256 samples of 1,124 tokens, 18,432 tokens a micro-batch, 32 leaves.
GpuWork recipe() {
  GpuWork work;
  work.running = 256;
  work.step_rows = 256 + 1 + 512;
  work.longest = work.keys = 1124;
  work.kv_pages = 256 * 19;
  work.positions = 32768;
  work.trains = true;
  work.rows = 18432;
  work.leaf_rows = 256 / 32 * 1136 + 1136;
  return work;
}

std::map<std::string, int64_t> by_name(const std::vector<MemoryPart>& parts) {
  std::map<std::string, int64_t> out;
  for (const MemoryPart& part : parts) out[part.name] = part.bytes;
  return out;
}

GpuInfo h200(int64_t free_bytes) {
  GpuInfo gpu;
  gpu.name = "NVIDIA H200";
  gpu.total_bytes = int64_t{140} << 30;
  gpu.free_bytes = free_bytes;
  return gpu;
}

TEST(GpuMemory, TheRecipeByHand) {
  const std::vector<MemoryPart> parts = gpu_memory(Profile::kBf16, half_billion(), recipe());
  auto bytes = by_name(parts);
  const int64_t parameters = 494032768;
  EXPECT_EQ(bytes["weights (bfloat16)"], 2 * parameters);
  EXPECT_EQ(bytes["masters (float32)"], 4 * parameters);
  EXPECT_EQ(bytes["AdamW moments"], 8 * parameters);
  EXPECT_EQ(bytes["gradient image (int64)"], 8 * parameters);
  // No micro-batch cuts a leaf, but its loss rows may be more than logits are in memory: the head's chain.
  EXPECT_EQ(bytes["gradient chains of cut leaves"], 2 * 4 * 151936 * 896);
  const int64_t rows = 18432;
  const int64_t layer = 8 * (rows + rows * 14) + 2 * rows * (1152 + 896 + 896 + 9728);
  const int64_t streams = 2 * rows * 896 * (25 + 1 + 6 + 1);  // layers', scratch, the head's, a gradient's
  const int64_t others = 2 * rows * (4864 + 4864 + 9728 + 896 + 1152) + 4 * rows;
  EXPECT_EQ(bytes["activations of 18432 tokens"], 24 * layer + streams + others);
  EXPECT_EQ(bytes["logits of loss rows"], int64_t{4096} * (151936 * (4 + 2) + 4 + 8 + 32 + 12));
  EXPECT_EQ(bytes["keys and values of 256 samples x 1124 tokens"],
            int64_t{256} * 19 * 64 * 24 * 2 * 2 * 64 * 2);
  EXPECT_EQ(bytes["RoPE tables"], 32768 * 32 * 2 * 4);
  EXPECT_LT(bytes["scratch memory and small tables"], int64_t{256} << 20);
  EXPECT_EQ(parts.size(), 11U);  // with the decode steps, which are small
  EXPECT_LT(memory_sum(parts), int64_t{40} << 30);
}

TEST(GpuMemory, WhatEachOptionTakes) {
  const auto sum = [](const GpuWork& work, Profile profile = Profile::kBf16) {
    return memory_sum(gpu_memory(profile, half_billion(), work));
  };
  const int64_t base = sum(recipe());
  GpuWork work = recipe();
  work.recompute = true;
  EXPECT_LT(sum(work), base - (int64_t{8} << 30));
  work = recipe();
  work.rows /= 2;
  EXPECT_LT(sum(work), base - (int64_t{5} << 30));
  work = recipe();
  work.kv_pages /= 2;
  EXPECT_LT(sum(work), base);
  work = recipe();
  work.cut_leaves = true;  // a chain of each matrix, and room for one on its way
  auto bytes = by_name(gpu_memory(Profile::kBf16, half_billion(), work));
  EXPECT_EQ(bytes["gradient chains of cut leaves"], 4 * (24 * int64_t{14909440} + 2 * 151936 * 896));
  work.leaf_rows = 20000;  // more than a chunk: the sum of whole chunks, too
  bytes = by_name(gpu_memory(Profile::kBf16, half_billion(), work));
  EXPECT_EQ(bytes["gradient chains of cut leaves"], 8 * (24 * int64_t{14909440} + 2 * 151936 * 896));
  work = recipe();
  work.reference = true;
  bytes = by_name(gpu_memory(Profile::kBf16, half_billion(), work));
  EXPECT_EQ(bytes["reference model"], 2 * int64_t{494032768} + 32768 * 32 * 2 * 4);
  EXPECT_GT(bytes["its activations and logits"], int64_t{2} << 30);
  work = recipe();
  work.trains = false;
  EXPECT_EQ(gpu_memory(Profile::kBf16, half_billion(), work).size(), 5U);
  EXPECT_GT(sum(recipe(), Profile::kFp32), base);
}

TEST(GpuMemory, WhatDoesNotFitIsRefusedWithTheArithmetic) {
  const int64_t free = int64_t{139} << 30;
  EXPECT_TRUE(check_gpu_memory(h200(free), gpu_memory(Profile::kBf16, half_billion(), recipe()), "").ok());
  EXPECT_TRUE(check_gpu_memory(h200(free), gpu_memory(Profile::kBf16, three_billion(), recipe()), "").ok());

  Status status =
      check_gpu_memory(h200(free), gpu_memory(Profile::kBf16, seven_billion(), recipe()), "lower x");
  EXPECT_EQ(status.code(), StatusCode::kInvalid);
  for (const char* text : {"weights (bfloat16) 14.2", "masters (float32) 28.4", "AdamW moments 56.7",
                           "gradient image (int64) 56.7", "139.0 GiB free of 140.0", "156.", "NVIDIA H200",
                           "it does not fit one GPU of this size"})
    EXPECT_NE(status.message().find(text), std::string::npos) << text << " in " << status.message();
  EXPECT_EQ(status.message().find("lower x"), std::string::npos);

  GpuWork large = recipe();
  large.rows = 102400;
  status = check_gpu_memory(h200(free), gpu_memory(Profile::kBf16, three_billion(), large), "lower x");
  EXPECT_NE(status.message().find("; lower x"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("activations of 102400 tokens 2"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("one GPU of this size"), std::string::npos);
}

TEST(ChooseDevice, AutoFallsBackAndSaysWhy) {
  DeviceChoice choice;
  const ChosenDevice cpu = choose_device(Profile::kBf16, half_billion(), choice).value();
  EXPECT_EQ(cpu.choice.device, "cpu");
  EXPECT_EQ(cpu.reason, "");
  choice.device = "auto";
  const ChosenDevice chosen = choose_device(Profile::kBf16, half_billion(), choice).value();
  EXPECT_EQ(chosen.choice.device, chosen.gpu ? "cuda" : "cpu");
  EXPECT_EQ(chosen.reason.rfind("computing on ", 0), 0U) << chosen.reason;
  for (const char* device : {"auto", "cuda"}) {
    choice.device = device;
    choice.index = 1000;
    const auto none = choose_device(Profile::kBf16, half_billion(), choice);
    ASSERT_FALSE(none.ok()) << device;
    EXPECT_EQ(none.status().code(), StatusCode::kInvalid);
    EXPECT_NE(none.status().message().find("--"), std::string::npos) << none.status().message();
  }
}

}  // namespace
}  // namespace lockstep::model
