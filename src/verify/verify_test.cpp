// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "ledger/ledger.h"
#include "same_bits.h"
#include "verify/compare_tensors.h"
#include "verify/inspect.h"

namespace lockstep::verify {
namespace {

// In memory where there is such a place: these tests sync hundreds of times.
std::string fast_folder() {
  return is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
}

using checkpoint::CheckpointWriter;
using checkpoint::SafetensorsWriter;
using checkpoint::TensorInfo;
using checkpoint::TensorSpec;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

Tensor f32(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {DType::kF32, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

numerics::Digest128 digest_of(const std::string& text) {
  return numerics::digest_bytes(text.data(), text.size());
}

class VerifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fast_folder() + "lockstep_verify_" + std::to_string(::getpid());
    ASSERT_TRUE(make_directories(dir_).ok());
  }
  void TearDown() override { EXPECT_TRUE(remove_all(dir_).ok()); }

  static std::vector<TensorSpec> specs(const Tensors& tensors) {
    std::vector<TensorSpec> out;
    for (const auto& [name, tensor] : tensors) out.push_back({name, tensor.dtype, tensor.shape});
    return out;
  }
  static void fill(SafetensorsWriter* writer, const Tensors& tensors) {
    for (const TensorInfo& info : writer->tensors()) {
      const std::string& bytes = tensors.at(info.name).bytes;
      ASSERT_TRUE(writer->append(info.name, bytes.data(), static_cast<int64_t>(bytes.size())).ok());
    }
    ASSERT_TRUE(writer->close().ok());
  }
  std::string put_tensors(const std::string& name, const Tensors& tensors) {
    const std::string path = dir_ + "/" + name + ".safetensors";
    auto writer = SafetensorsWriter::create(path, specs(tensors));
    EXPECT_TRUE(writer.ok());
    fill(&writer.value(), tensors);
    return path;
  }
  static void put_checkpoint(CheckpointWriter writer, const Tensors& weights, const Tensors& optimizer,
                             const std::string& state) {
    fill(writer.add_safetensors(checkpoint::kModelFile, specs(weights)).value(), weights);
    fill(writer.add_safetensors(checkpoint::kOptimizerFile, specs(optimizer)).value(), optimizer);
    ASSERT_TRUE(writer.add_file("config.json", "{}").ok());
    ASSERT_TRUE(writer.add_file("state.json", state).ok());
    ASSERT_TRUE(writer.commit().ok());
  }
  // A run of `steps` steps; `changed` is a "step/phase" whose digest (and tensor "b") is another.
  std::string put_run(const std::string& name, int64_t steps, const std::string& changed = "",
                      double lr = 1e-6) {
    const std::string run = dir_ + "/" + name;
    EXPECT_TRUE(make_directories(run).ok());
    const std::string header =
        ledger::JsonObject()
            .add("lockstep_ledger", 1)
            .add_json("config", ledger::JsonObject().add("lr", lr).add("seed", 42).text())
            .text();
    auto writer = ledger::LedgerWriter::create(run + "/ledger.jsonl", header);
    EXPECT_TRUE(writer.ok());
    for (int64_t step = 0; step < steps; ++step) {
      for (const std::string phase : {"tokens", "rewards", "weights"}) {
        const std::string what = std::to_string(step) + "/" + phase;
        ledger::LedgerRecord record;
        record.step = step;
        record.phase = phase;
        record.digest = digest_of(what + (what == changed ? "!" : ""));
        if (phase == "rewards") record.add("mean", what == changed ? 0.5 : 0.25);
        if (phase == "weights") {
          record.tensors = {{"a", digest_of(what + "a")},
                            {"b", digest_of(what + (what == changed ? "b!" : "b"))},
                            {"c", digest_of(what + (what == changed ? "c!" : "c"))}};
        }
        writer.value().append(record);
      }
      EXPECT_TRUE(writer.value().commit().ok());
    }
    return run;
  }
  void put_environment(const std::string& run, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(run + "/environment.jsonl", text).ok());
  }
  static Verdict verdict(const std::string& a, const std::string& b, const VerifyOptions& options = {}) {
    auto result = verify_paths(a, b, options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (!result.ok()) return {StatusCode::kInvalid, {result.status().message()}};
    EXPECT_FALSE(result.value().lines.empty());
    return result.value();
  }
  static std::string all_lines(const Verdict& v) {
    std::string text;
    for (const std::string& line : v.lines) text += line + "\n";
    return text;
  }

  std::string dir_;
};

// X01: bytes, not values.
TEST_F(VerifyTest, NanEqualsItselfAndZeroHasASign) {
  const float nan = std::bit_cast<float>(0x7FC00001U);
  const Tensors base = {{"w", f32({2, 3}, {1, nan, 0, -1, 2, 3})}, {"x", f32({1}, {nan})}};
  const std::string a = put_tensors("a", base);
  const std::string same = put_tensors("same", base);
  Verdict v = verdict(a, same);
  EXPECT_EQ(v.code, StatusCode::kOk);
  EXPECT_EQ(v.lines[0], "same: 2 tensors, 28 bytes");

  Tensors changed = base;
  changed["w"] = f32({2, 3}, {1, nan, -0.0F, -1, 2, 3});
  v = verdict(a, put_tensors("zero", changed));
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_EQ(v.lines[0],
            "different: tensor \"w\" F32 [2,3]: 1 of 6 elements differ; first at [0,2]: 0x00000000 (0) and "
            "0x80000000 (-0.0); sign of zero");

  changed = base;
  changed["w"] = f32({2, 3}, {1, std::bit_cast<float>(0x7FC00002U), 0, -1, 2.5F, 3});
  v = verdict(a, put_tensors("nan", changed));
  EXPECT_EQ(v.lines[0],
            "different: tensor \"w\" F32 [2,3]: 2 of 6 elements differ; first at [0,1]: 0x7fc00001 (nan) and "
            "0x7fc00002 (nan); both NaN, other payload");
  EXPECT_EQ(v.lines[1], "  1 of 2 tensors differ");
}

TEST_F(VerifyTest, TensorSetsTypesAndShapes) {
  const std::string a =
      put_tensors("a", {{"p", f32({2}, {1, 2})}, {"q", f32({2}, {1, 2})}, {"r", f32({1}, {1})}});
  const std::string b =
      put_tensors("b", {{"q", f32({2, 1}, {1, 2})}, {"r", {DType::kI32, {1}, "abcd"}}, {"s", f32({0}, {})}});
  const Verdict v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_EQ(v.lines[0], "different: tensor \"p\": only in the first");
  EXPECT_EQ(v.lines[1], "  tensor \"q\": F32 [2] and F32 [2,1]");
  EXPECT_EQ(v.lines[2], "  tensor \"r\": F32 [1] and I32 [1]");
  EXPECT_EQ(v.lines[3], "  tensor \"s\": only in the second");
  VerifyOptions two;
  two.max_lines = 2;
  EXPECT_EQ(verdict(a, b, two).lines[2], "  and 2 more tensors");
}

TEST_F(VerifyTest, ElementsOfEveryType) {
  const auto text = [](DType dtype, uint64_t bits) { return element_text(dtype, &bits); };
  EXPECT_EQ(text(DType::kF32, 0x3F800000), "0x3f800000 (1)");
  EXPECT_EQ(text(DType::kF64, 0x3FF8000000000000), "0x3ff8000000000000 (1.5)");
  EXPECT_EQ(text(DType::kBF16, 0x3F80), "0x3f80 (1)");
  EXPECT_EQ(text(DType::kF16, 0x3C00), "0x3c00 (1)");
  EXPECT_EQ(text(DType::kF32, 0xFF800000), "0xff800000 (-inf)");
  EXPECT_EQ(text(DType::kI8, 0xFF), "0xff (-1)");
  EXPECT_EQ(text(DType::kI64, ~uint64_t{0}), "0xffffffffffffffff (-1)");
  EXPECT_EQ(text(DType::kU64, ~uint64_t{0}), "0xffffffffffffffff (18446744073709551615)");
  EXPECT_EQ(text(DType::kBool, 1), "0x01 (1)");
  EXPECT_EQ(coordinates({2, 3, 4}, 23), "[1,2,3]");
  EXPECT_EQ(coordinates({}, 0), "[]");
}

// Longer than one piece of reading, and a difference in the last element.
TEST_F(VerifyTest, LongTensors) {
  std::vector<float> values = testing::TestRandom(1).values(300000);
  const std::string a = put_tensors("a", {{"w", f32({300, 1000}, values)}});
  values[299999] = 7;
  Verdict v = verdict(a, put_tensors("b", {{"w", f32({300, 1000}, values)}}));
  EXPECT_TRUE(has(v.lines[0], "1 of 300000 elements differ; first at [299,999]")) << v.lines[0];
  values[1] = 7;
  v = verdict(a, put_tensors("b", {{"w", f32({300, 1000}, values)}}));
  EXPECT_TRUE(has(v.lines[0], "2 of 300000 elements differ; first at [0,1]")) << v.lines[0];
}

TEST_F(VerifyTest, Checkpoints) {
  const Tensors w = {{"w", f32({1}, {1})}};
  const Tensors m = {{"m", f32({2}, {1, 2})}};
  const Tensors m2 = {{"m", f32({2}, {1, 3})}};
  const auto folder = [&](const char* name) {
    return CheckpointWriter::begin_folder(dir_ + "/" + name).value();
  };
  put_checkpoint(folder("a"), w, m, "{}");
  put_checkpoint(folder("same"), w, m, "{}");
  put_checkpoint(folder("optimizer"), w, m2, "{}");
  put_checkpoint(folder("state"), w, m, "{ }");
  Verdict v = verdict(dir_ + "/a", dir_ + "/same");
  EXPECT_EQ(v.code, StatusCode::kOk) << all_lines(v);
  EXPECT_EQ(v.lines[0],
            "same: weights: 1 tensors, 4 bytes; optimizer.safetensors: 1 tensors, 8 bytes; 2 other files");
  v = verdict(dir_ + "/a", dir_ + "/optimizer");
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_TRUE(has(v.lines[0], "different: optimizer.safetensors: tensor \"m\"")) << all_lines(v);
  v = verdict(dir_ + "/a", dir_ + "/state");
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_TRUE(has(v.lines[0], "different: state.json: SHA-256")) << all_lines(v);
  ASSERT_TRUE(remove_all(dir_ + "/state/optimizer.safetensors").ok());
  v = verdict(dir_ + "/a", dir_ + "/state");
  EXPECT_TRUE(has(all_lines(v), "optimizer.safetensors: only in the first")) << all_lines(v);
}

TEST_F(VerifyTest, RunsOfOneIdentity) {
  const std::string a = put_run("a", 4);
  const std::string same = put_run("same", 4);
  Verdict v = verdict(a, same);
  EXPECT_EQ(v.code, StatusCode::kOk);
  EXPECT_EQ(v.lines[0], "same: 12 records, steps 0 to 3");
  v = verdict(a + "/ledger.jsonl", same + "/ledger.jsonl");
  EXPECT_EQ(v.code, StatusCode::kOk);

  v = verdict(a, put_run("rewards", 4, "2/rewards"));
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_EQ(v.lines[0], "different: first at step 2, phase rewards: \"mean\": 0.25 and 0.5");
  EXPECT_TRUE(has(all_lines(v), "equal before: steps 0 to 1; of step 2: tokens\n")) << all_lines(v);

  v = verdict(a, put_run("weights", 4, "0/weights"));
  EXPECT_TRUE(has(v.lines[0], "different: first at step 0, phase weights: tensor \"b\": digest "))
      << v.lines[0];
  EXPECT_TRUE(has(v.lines[0], "(2 of 3 tensors differ)"));
  EXPECT_TRUE(has(all_lines(v), "equal before: of step 0: tokens, rewards\n")) << all_lines(v);

  v = verdict(a, put_run("tokens", 4, "0/tokens"));
  EXPECT_TRUE(has(v.lines[0], "step 0, phase tokens: digest of the phase")) << v.lines[0];
  EXPECT_TRUE(has(all_lines(v), "nothing but the identity"));
}

TEST_F(VerifyTest, OtherIdentitiesAreNotComparable) {
  const Verdict v = verdict(put_run("a", 1), put_run("b", 1, "", 2e-6));
  EXPECT_EQ(v.code, StatusCode::kNotComparable);
  EXPECT_EQ(v.lines[0], "not comparable: the identities differ: config.lr: 1e-06 and 2e-06");
}

TEST_F(VerifyTest, ShorterRuns) {
  const std::string a = put_run("a", 4);
  const std::string b = put_run("b", 2);
  VerifyOptions prefix;
  prefix.prefix = true;
  Verdict v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_TRUE(has(v.lines[0], "the second ends with step 1, phase weights, the first ends with step 3"))
      << v.lines[0];
  EXPECT_EQ(verdict(a, b, prefix).code, StatusCode::kOk);
  EXPECT_EQ(verdict(b, a, prefix).code, StatusCode::kOk);
  EXPECT_EQ(verdict(a, put_run("c", 2, "1/tokens"), prefix).code, StatusCode::kDifferent);
}

// X04: which promise is broken, and from which step on.
TEST_F(VerifyTest, NamesTheBrokenPromise) {
  const std::string a = put_run("a", 4);
  const std::string b = put_run("b", 4, "2/weights");
  const std::string start = R"({"checkpoint":"","threads":2,"host":"x"})";
  put_environment(a, start + "\n");
  put_environment(b, R"({"checkpoint":"","threads":2,"host":"y"})"
                     "\n");
  EXPECT_TRUE(has(all_lines(verdict(a, b)), "promise broken: equal when repeated"))
      << all_lines(verdict(a, b));
  put_environment(b, R"({"checkpoint":"","threads":8})"
                     "\n");
  EXPECT_TRUE(has(all_lines(verdict(a, b)), "equal on other machines and options\n  threads: 2 and 8"))
      << all_lines(verdict(a, b));
  put_environment(b, start + "\n" + R"({"checkpoint":"r/iter_0000001","threads":2})" + "\n");
  EXPECT_TRUE(has(all_lines(verdict(a, b)),
                  "promise broken: equal after a restart\n  the second run was started again at step 2"))
      << all_lines(verdict(a, b));
  put_environment(
      b, start + "\n" + R"({"checkpoint":"r/iter_0000002","threads":2})" + "\n");  // after the difference
  EXPECT_TRUE(has(all_lines(verdict(a, b)), "promise broken: equal when repeated"));
}

TEST_F(VerifyTest, SavedFilesOfEqualRuns) {
  const std::string a = put_run("a", 2);
  const std::string b = put_run("b", 2);
  const Tensors w = {{"w", f32({1}, {1})}};
  put_checkpoint(CheckpointWriter::begin(a, 1).value(), w, w, "{}");
  put_checkpoint(CheckpointWriter::begin(b, 1).value(), w, w, "{}");
  Verdict v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kOk);
  EXPECT_TRUE(has(all_lines(v), "checkpoints in both: 1")) << all_lines(v);
  ASSERT_TRUE(remove_all(b + "/iter_0000001").ok());
  put_checkpoint(CheckpointWriter::begin(b, 1).value(), w, w, "{ }");
  v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_TRUE(has(v.lines[0], "iter_0000001/state.json")) << v.lines[0];
}

// The files are the truth, not the lists of their hashes.
TEST_F(VerifyTest, ADamagedCheckpointOfEqualRuns) {
  const std::string a = put_run("a", 2);
  const std::string b = put_run("b", 2);
  const Tensors w = {{"w", f32({1}, {1})}};
  for (const std::string& run : {a, b}) put_checkpoint(CheckpointWriter::begin(run, 1).value(), w, w, "{}");
  const std::string file = b + "/iter_0000001/model.safetensors";
  std::string bytes = read_file(file).value();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(write_file_atomic(file, bytes).ok());
  Verdict v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kDifferent) << all_lines(v);
  EXPECT_TRUE(has(v.lines[0], "different: iter_0000001/model.safetensors")) << v.lines[0];
  EXPECT_TRUE(has(v.lines[0], "the second does not agree with its SHA256SUMS")) << v.lines[0];
  EXPECT_FALSE(has(v.lines[0], "the first does not")) << v.lines[0];
  ASSERT_TRUE(write_file_atomic(a + "/iter_0000001/model.safetensors", bytes).ok());
  EXPECT_EQ(verdict(a, b).code, StatusCode::kDifferent);  // damaged alike
  ASSERT_TRUE(remove_all(file).ok());
  v = verdict(a, b);
  EXPECT_TRUE(has(v.lines[0], "model.safetensors, though the ledgers are equal: is not in the second"))
      << v.lines[0];
}

TEST_F(VerifyTest, ATornLedgerOfARunIsSaid) {
  const std::string a = put_run("a", 2);
  const std::string b = put_run("b", 2);
  std::ofstream(b + "/ledger.jsonl", std::ios::app) << R"({"step":2,"ph)";
  const Verdict v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kOk);
  EXPECT_TRUE(has(all_lines(v), "b/ledger.jsonl: 13 bytes of a torn last line are left out")) << all_lines(v);
}

TEST_F(VerifyTest, SamplesOfEqualRuns) {
  const std::string a = put_run("a", 2);
  const std::string b = put_run("b", 2);
  for (const std::string& run : {a, b}) {
    ASSERT_TRUE(make_directories(run + "/samples").ok());
    ASSERT_TRUE(write_file_atomic(run + "/samples/rollout_0000000.jsonl", "{}\n").ok());
  }
  ASSERT_TRUE(write_file_atomic(a + "/samples/rollout_0000001.jsonl", "{}\n").ok());
  Verdict v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kOk);
  EXPECT_TRUE(has(all_lines(v), "sample files in both: 1, same bytes")) << all_lines(v);
  ASSERT_TRUE(write_file_atomic(b + "/samples/rollout_0000000.jsonl", "{ }\n").ok());
  v = verdict(a, b);
  EXPECT_EQ(v.code, StatusCode::kDifferent);
  EXPECT_TRUE(has(v.lines[0], "different: samples/rollout_0000000.jsonl")) << v.lines[0];
}

TEST_F(VerifyTest, UnreadableOrMixedIsInvalid) {
  const std::string run = put_run("a", 1);
  const std::string tensors = put_tensors("t", {{"w", f32({1}, {1})}});
  const auto code = [](const std::string& a, const std::string& b) {
    const auto result = verify_paths(a, b);
    return result.ok() ? StatusCode::kOk : result.status().code();
  };
  EXPECT_EQ(code(run, tensors), StatusCode::kInvalid);
  const auto mixed = verify_paths(run, run + "/ledger.jsonl");
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.status().code(), StatusCode::kInvalid);
  EXPECT_TRUE(has(mixed.status().message(), "is a run folder") &&
              has(mixed.status().message(), "two of one kind"))
      << mixed.status().message();
  EXPECT_EQ(code(run, dir_ + "/none"), StatusCode::kInvalid);
  EXPECT_EQ(code(dir_, dir_), StatusCode::kInvalid);
  ASSERT_TRUE(write_file_atomic(dir_ + "/x.txt", "").ok());
  EXPECT_EQ(code(dir_ + "/x.txt", dir_ + "/x.txt"), StatusCode::kInvalid);
  ASSERT_TRUE(write_file_atomic(dir_ + "/cut.safetensors", "abc").ok());
  EXPECT_EQ(code(tensors, dir_ + "/cut.safetensors"), StatusCode::kInvalid);
  ASSERT_TRUE(write_file_atomic(dir_ + "/x.jsonl", "{}\n").ok());
  EXPECT_EQ(code(run + "/ledger.jsonl", dir_ + "/x.jsonl"), StatusCode::kInvalid);
}

TEST_F(VerifyTest, Inspect) {
  const float inf = std::bit_cast<float>(0x7F800000U);
  const std::string tensors =
      put_tensors("t", {{"w", f32({2, 2}, {1, -3, 5, inf})}, {"n", {DType::kI32, {1}, "abcd"}}});
  InspectOptions options;
  options.digests = false;
  EXPECT_EQ(inspect_path(tensors, options).value(),
            "t.safetensors: 2 tensors (1 F32, 1 I32), 5 elements, 172 bytes\n"
            "  metadata \"format\": \"pt\"\n"
            "  \"n\"  I32 [1]\n"
            "  \"w\"  F32 [2,2]\n");
  options = {};
  options.statistics = true;
  const std::string text = inspect_path(tensors, options).value();
  EXPECT_TRUE(has(text, numerics::digest_bytes("abcd", 4).hex())) << text;
  EXPECT_TRUE(has(text, "min -3 max 5 mean 1  NaN or infinite: 1")) << text;

  const std::string run = put_run("a", 2);
  const Tensors w = {{"w", f32({1}, {1})}};
  put_checkpoint(CheckpointWriter::begin(run, 1).value(), w, w, "{\"step\":1}\n");
  const std::string listing = inspect_path(run).value();
  for (const char* part : {"6 records", "config.lr: 1e-06", "iter_0000001  complete", "chain whole",
                           "latest_checkpointed_iteration.txt: \"1\""}) {
    EXPECT_TRUE(has(listing, part)) << part << "\n" << listing;
  }
  const std::string folder = inspect_path(run + "/iter_0000001").value();
  for (const char* part :
       {"SHA256SUMS: all files agree", "state.json: {\"step\":1}", "optimizer.safetensors: 1 tensors"}) {
    EXPECT_TRUE(has(folder, part)) << part << "\n" << folder;
  }
  EXPECT_FALSE(inspect_path(dir_ + "/none").ok());
}

}  // namespace
}  // namespace lockstep::verify
