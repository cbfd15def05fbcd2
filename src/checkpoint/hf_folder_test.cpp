// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/file.h"
#include "same_bits.h"

namespace lockstep::checkpoint {
namespace {

// In memory where there is such a place: these tests sync hundreds of times.
std::string fast_folder() {
  return is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fast_folder() + "lockstep_hf_" + std::to_string(::getpid());
    ASSERT_TRUE(make_directories(folder_).ok());
  }
  void TearDown() override { EXPECT_TRUE(remove_all(folder_).ok()); }

  // Tensors of two floats: the first is `first`, the second 0.
  void put_shard(const std::string& file, const std::vector<std::string>& names, float first) {
    std::vector<TensorSpec> specs;
    for (const std::string& name : names) specs.push_back({name, DType::kF32, {2}});
    auto writer = SafetensorsWriter::create(folder_ + "/" + file, specs);
    ASSERT_TRUE(writer.ok());
    const float values[2] = {first, 0.0F};
    for (const TensorInfo& tensor : writer.value().tensors()) {
      ASSERT_TRUE(writer.value().append(tensor.name, values, 8).ok());
    }
    ASSERT_TRUE(writer.value().close().ok());
  }
  void put(const std::string& file, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(folder_ + "/" + file, text).ok());
  }
  void put_sharded() {
    put_shard("s1.safetensors", {"a", "d"}, 1);
    put_shard("s2.safetensors", {"b", "c", "e"}, 2);
    put_shard("s3.safetensors", {"f"}, 3);
    put(kModelIndexFile,
        R"({"metadata":{"total_size":48},"weight_map":{"a":"s1.safetensors","b":"s2.safetensors",
      "c":"s2.safetensors","d":"s1.safetensors","e":"s2.safetensors","f":"s3.safetensors"}})");
  }
  std::string refusal() {
    const auto weights = HfWeights::open(folder_);
    if (weights.ok()) return "opened";
    EXPECT_EQ(weights.status().code(), StatusCode::kInvalid);
    EXPECT_EQ(weights.status().message().find('\n'), std::string::npos);
    return weights.status().message();
  }

  std::string folder_;
};

TEST_F(HfFolderTest, ReadsSingleFile) {
  put_shard(kModelFile, {"y", "x"}, 5);
  const auto weights = HfWeights::open(folder_);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights.value().names(), (std::vector<std::string>{"x", "y"}));
  float got[2];
  ASSERT_TRUE(weights.value().read_f32("y", got).ok());
  EXPECT_EQ(got[0], 5.0F);
  EXPECT_EQ(weights.value().find("z"), nullptr);
  EXPECT_FALSE(weights.value().read("z", got).ok());
}

TEST_F(HfFolderTest, ReadsShards) {
  put_sharded();
  const auto weights = HfWeights::open(folder_);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights.value().names(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f"}));
  const float want[] = {1, 2, 2, 1, 2, 3};
  for (size_t i = 0; i < 6; ++i) {
    float got[2];
    ASSERT_TRUE(weights.value().read_f32(weights.value().names()[i], got).ok());
    EXPECT_EQ(got[0], want[i]);
    ASSERT_TRUE(weights.value().read_f32(weights.value().names()[i], 1, 2, got).ok());
    EXPECT_EQ(got[0], 0.0F);
  }
  EXPECT_EQ(weights.value().find("f")->size_bytes, 8);
}

// W03: all missing shards, and how many tensors each holds.
TEST_F(HfFolderTest, MissingShardsAreNamed) {
  put_sharded();
  ASSERT_TRUE(remove_all(folder_ + "/s2.safetensors").ok());
  EXPECT_TRUE(has(refusal(), "\"s2.safetensors\" (3 tensors)")) << refusal();
  ASSERT_TRUE(remove_all(folder_ + "/s3.safetensors").ok());
  EXPECT_TRUE(has(refusal(), "\"s2.safetensors\" (3 tensors), \"s3.safetensors\" (1 tensors)")) << refusal();
}

TEST_F(HfFolderTest, IndexAndShardsMustAgree) {
  put_sharded();
  put_shard("s2.safetensors", {"b", "c"}, 2);
  EXPECT_TRUE(has(refusal(), "tensor \"e\" is not in \"s2.safetensors\"")) << refusal();
  put_shard("s2.safetensors", {"b", "c", "e", "g"}, 2);
  EXPECT_TRUE(has(refusal(), "tensor \"g\" is not listed")) << refusal();
  put_shard("s2.safetensors", {"a", "b", "c", "e"}, 2);  // "a" belongs to s1
  EXPECT_TRUE(has(refusal(), "tensor \"a\" is not listed")) << refusal();
}

TEST_F(HfFolderTest, HostileIndex) {
  put_shard("s1.safetensors", {"a"}, 1);
  const char* bad[] = {"",
                       "[]",
                       "{}",
                       R"({"weight_map":[]})",
                       R"({"weight_map":{}})",
                       R"({"weight_map":{"a":1}})",
                       R"({"weight_map":{"a":"../s1.safetensors"}})",
                       R"({"weight_map":{"a":"/etc/passwd"}})",
                       R"({"weight_map":{"a":".."}})",
                       R"({"weight_map":{"a":""}})",
                       R"({"weight_map":{"a":"s1.safetensors\u0000"}})",
                       R"({"weight_map":{"a":"s1.safetensors","a":"s1.safetensors"}})"};
  for (const char* text : bad) {
    put(kModelIndexFile, text);
    EXPECT_TRUE(has(refusal(), kModelIndexFile)) << text << "\n" << refusal();
  }
  put(kModelIndexFile, R"({"x":)" + std::string(100000, '[') + std::string(100000, ']') +
                           R"(,"weight_map":{"a":"s1.safetensors"}})");
  EXPECT_TRUE(has(refusal(), "nests deeper")) << refusal();
  put(kModelIndexFile, R"({"weight_map":{"a":"s1.safetensors"}})");
  EXPECT_EQ(refusal(), "opened");
}

TEST_F(HfFolderTest, NoWeights) {
  EXPECT_TRUE(has(refusal(), "holds neither model.safetensors"));
  folder_ += "/none";
  EXPECT_TRUE(has(refusal(), "is not a folder"));
  folder_.resize(folder_.size() - 5);
}

TEST_F(HfFolderTest, SideFilesInByteOrder) {
  put("tokenizer.json", "{}");
  put("merges.txt", "");
  put("README.md", "");
  put(kConfigFile, "{\"x\":1}\n");
  EXPECT_EQ(side_files(folder_).value(), (std::vector<std::string>{"merges.txt", "tokenizer.json"}));
  EXPECT_EQ(read_config_json(folder_).value(), "{\"x\":1}\n");
}

}  // namespace
}  // namespace lockstep::checkpoint
