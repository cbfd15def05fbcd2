// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "core/bytes.h"
#include "same_bits.h"

namespace lockstep::checkpoint {
namespace {

// In memory where there is such a place: these tests sync hundreds of times.
std::string fast_folder() {
  return is_directory("/dev/shm") && ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : ::testing::TempDir();
}

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fast_folder() + "lockstep_safetensors_" + std::to_string(::getpid());
    ASSERT_TRUE(make_directories(folder_).ok());
  }
  void TearDown() override { EXPECT_TRUE(remove_all(folder_).ok()); }

  std::string put(const std::string& bytes) {
    const std::string path = folder_ + "/x.safetensors";
    EXPECT_TRUE(write_file_atomic(path, bytes).ok());
    return path;
  }
  // A file of this header and data.
  std::string put(const std::string& header, const std::string& data) {
    return put(file_bytes(header, data));
  }
  static std::string file_bytes(const std::string& header, const std::string& data) {
    char length[8];
    store_le<uint64_t>(length, header.size());
    return std::string(length, 8) + header + data;
  }
  // The error of opening, which must be kInvalid, one line, and name the file.
  static std::string refusal(const std::string& path) {
    const auto file = SafetensorsFile::open(path);
    if (file.ok()) return "opened";
    EXPECT_EQ(file.status().code(), StatusCode::kInvalid);
    const std::string& text = file.status().message();
    EXPECT_EQ(text.find(path), 0U) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  std::string refusal(const std::string& header, const std::string& data) {
    return refusal(put(header, data));
  }

  std::string folder_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(SafetensorsTest, WritesCanonicalBytes) {
  const std::string path = folder_ + "/w.safetensors";
  // Given in another order than written.
  auto writer = SafetensorsWriter::create(path, {{"b", DType::kF32, {2}}, {"a", DType::kF32, {}}});
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_EQ(writer.value().tensors()[0].name, "a");
  const float a = 1.5F;
  const float b[2] = {-0.0F, 3.0F};
  ASSERT_TRUE(writer.value().append("a", &a, 4).ok());
  ASSERT_TRUE(writer.value().append("b", &b[0], 4).ok());  // in pieces
  ASSERT_TRUE(writer.value().append("b", &b[1], 4).ok());
  ASSERT_TRUE(writer.value().close().ok());

  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  while (header.size() % 8 != 0) header += ' ';
  std::string data(12, '\0');
  std::memcpy(data.data(), &a, 4);
  std::memcpy(data.data() + 4, b, 8);
  const auto bytes = read_file(path);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes.value(), file_bytes(header, data));
  EXPECT_EQ(writer.value().sha256(), sha256_hex(bytes.value()));
  EXPECT_EQ(writer.value().file_bytes(), static_cast<int64_t>(bytes.value().size()));
  EXPECT_EQ(safetensors_file_bytes({{"b", DType::kF32, {2}}, {"a", DType::kF32, {}}}).value(),
            writer.value().file_bytes());

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().metadata().at("format"), "pt");
  float back[2];
  ASSERT_TRUE(file.value().read("b", back).ok());
  EXPECT_TRUE(testing::same_bits(b, back, 2));
}

TEST_F(SafetensorsTest, WriterAlignsMixedTypes) {
  auto writer = SafetensorsWriter::create(
      folder_ + "/w.safetensors",
      {{"a", DType::kBF16, {1}}, {"b", DType::kF32, {1}}, {"c", DType::kU8, {0}}, {"d", DType::kI64, {1}}});
  ASSERT_TRUE(writer.ok());
  std::string order;
  for (const TensorInfo& t : writer.value().tensors()) {
    order += t.name;
    EXPECT_EQ(t.begin_bytes % dtype_size_bytes(t.dtype), 0);
    const std::string bytes(static_cast<size_t>(t.size_bytes), 'x');
    ASSERT_TRUE(writer.value().append(t.name, bytes.data(), t.size_bytes).ok());
  }
  EXPECT_EQ(order, "dbac");
  ASSERT_TRUE(writer.value().close().ok());
  EXPECT_TRUE(SafetensorsFile::open(folder_ + "/w.safetensors").ok());
}

TEST_F(SafetensorsTest, WriterRefusesDuplicatesAndOverflow) {
  const std::string path = folder_ + "/w.safetensors";
  const auto twice = SafetensorsWriter::create(path, {{"a", DType::kF32, {1}}, {"a", DType::kF32, {2}}});
  ASSERT_FALSE(twice.ok());
  EXPECT_TRUE(has(twice.status().message(), "\"a\""));
  EXPECT_FALSE(SafetensorsWriter::create(path, {{"a", DType::kF32, {int64_t{1} << 61}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::create(path, {{"a", DType::kF32, {-1}}}).ok());
  EXPECT_FALSE(path_exists(path));
}

TEST_F(SafetensorsTest, FullDiskIsReported) {
  if (!path_exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto writer = SafetensorsWriter::create("/dev/full", {{"a", DType::kF32, {1}}});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), StatusCode::kStopped);
  EXPECT_TRUE(has(writer.status().message(), "/dev/full"));
}

// W13: exact for all 65,536 patterns of both types; checked against the definition in binary64.
TEST_F(SafetensorsTest, NarrowTypesConvertExactly) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const std::string path = folder_ + "/h.safetensors";
  auto writer =
      SafetensorsWriter::create(path, {{"bf", DType::kBF16, {256, 256}}, {"h", DType::kF16, {65536}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().append("bf", bits.data(), 131072).ok());
  ASSERT_TRUE(writer.value().append("h", bits.data(), 131072).ok());
  ASSERT_TRUE(writer.value().close().ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  std::vector<float> got(65536);
  ASSERT_TRUE(file.value().read_f32("bf", got.data()).ok());
  for (uint32_t i = 0; i < 65536; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), i << 16);
  std::vector<float> rows(512);
  ASSERT_TRUE(file.value().read_f32("bf", 3, 5, rows.data()).ok());
  EXPECT_TRUE(testing::same_bits(got.data() + 3 * 256, rows.data(), 512));
  EXPECT_FALSE(file.value().read_f32("bf", 3, 257, rows.data()).ok());
  EXPECT_FALSE(file.value().read_f32("bf", -1, 0, rows.data()).ok());

  ASSERT_TRUE(file.value().read_f32("h", got.data()).ok());
  for (int i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31;
    const int fraction = i & 1023;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(got[i]));
      continue;
    }
    double want = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) want = std::numeric_limits<double>::infinity();
    want = std::copysign(want, i >= 32768 ? -1.0 : 1.0);
    ASSERT_EQ(testing::bits_of(static_cast<float>(want)), testing::bits_of(got[i])) << i;
  }
}

// More elements than one piece of reading holds.
TEST_F(SafetensorsTest, LongNarrowTensors) {
  std::vector<uint16_t> bits(3 * 200000);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>((i * 40503) >> 4);
  auto writer = SafetensorsWriter::create(folder_ + "/l.safetensors", {{"w", DType::kBF16, {3, 200000}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().append("w", bits.data(), 1200000).ok());
  ASSERT_TRUE(writer.value().close().ok());
  const auto file = SafetensorsFile::open(folder_ + "/l.safetensors");
  ASSERT_TRUE(file.ok());
  std::vector<float> got(bits.size());
  ASSERT_TRUE(file.value().read_f32("w", got.data()).ok());
  for (size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), static_cast<uint32_t>(bits[i]) << 16) << i;
  }
  std::vector<float> rows(400000);
  ASSERT_TRUE(file.value().read_f32("w", 1, 3, rows.data()).ok());
  EXPECT_TRUE(testing::same_bits(got.data() + 200000, rows.data(), 400000));
}

TEST_F(SafetensorsTest, OtherTypesAreNotReadAsF32) {
  const std::string path = put(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "abcd");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  float x = 0;
  const Status status = file.value().read_f32("a", &x);
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(has(status.message(), "I32 [1]")) << status.message();
}

TEST_F(SafetensorsTest, UnknownTensorNamesTheNearest) {
  const std::string path =
      put(R"({"model.norm.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().find("model.norm.weigth"), nullptr);
  const auto got = file.value().get("model.norm.weigth");
  ASSERT_FALSE(got.ok());
  EXPECT_TRUE(has(got.status().message(), "nearest: \"model.norm.weight\"")) << got.status().message();
}

// W05.
TEST_F(SafetensorsTest, CutFilesAreRefused) {
  const std::string whole =
      file_bytes(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", std::string(16, 'x'));
  ASSERT_EQ(refusal(put(whole)), "opened");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string text = refusal(put(whole.substr(0, size)));
    const bool data_cut = size >= whole.size() - 16;
    const std::string found = data_cut ? std::to_string(size) + " bytes" : "found";
    EXPECT_TRUE(has(text, found)) << size << ": " << text;
    if (data_cut) {
      EXPECT_TRUE(has(text, "\"a\" ends at byte " + std::to_string(whole.size()))) << text;
    }
  }
}

// W06: refused at once, and without the memory that the length promises.
TEST_F(SafetensorsTest, HeaderLengthIsNotTrusted) {
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const std::string lengths[] = {std::string("\x40\x9D\xDF\x07\0\0\0\0", 8),
                                 std::string(8, '\xFF'),
                                 std::string(8, '\0'),
                                 std::string("\x03\0\0\0\0\0\0\0", 8),
                                 std::string("\xFF\xE0\xF5\x05\0\0\0\0", 8),
                                 std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8)};
  for (const std::string& length : lengths) EXPECT_TRUE(has(refusal(put(length + "{}")), "header"));
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024);  // KiB
  EXPECT_EQ(refusal(put(std::string("\x02\0\0\0\0\0\0\0", 8) + "{}")), "opened");
}

// W08.
TEST_F(SafetensorsTest, TensorsTileTheData) {
  const auto two = [](const char* k, const char* v) {
    return std::string(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":)") + v +
           R"(},"k":{"dtype":"F32","shape":[2],"data_offsets":)" + k + "}}";
  };
  const std::string data(16, 'x');
  EXPECT_EQ(refusal(two("[0,8]", "[8,16]"), data), "opened");
  EXPECT_EQ(refusal(two("[8,16]", "[0,8]"), data), "opened");  // any order of entries
  std::string text = refusal(two("[0,8]", "[0,8]"), data.substr(8));
  EXPECT_TRUE(has(text, "inside tensor \"k\"")) << text;
  text = refusal(two("[0,8]", "[4,12]"), data.substr(4));
  EXPECT_TRUE(has(text, "tensor \"v\" begins at byte 4")) << text;
  text = refusal(two("[0,8]", "[12,20]"), data + "abcd");
  EXPECT_TRUE(has(text, "4 bytes between tensor \"k\" and tensor \"v\"")) << text;
  text = refusal(two("[4,12]", "[12,20]"), data + "abcd");
  EXPECT_TRUE(has(text, "4 bytes between the header and tensor \"k\"")) << text;
  text = refusal(two("[0,8]", "[8,16]"), data + "abc");
  EXPECT_TRUE(has(text, "3 bytes behind the last tensor") && has(text, "expected 16") &&
              has(text, "found 19"))
      << text;
  EXPECT_TRUE(has(refusal("{}", "abc"), "3 bytes behind"));
}

// W10.
TEST_F(SafetensorsTest, HostileHeadersAreRefused) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  struct Case {
    std::string header, want;
  };
  const std::string f32 = "\"F32\"";
  const Case cases[] = {
      {one(f32, "[4611686018427387904,4]", "[0,16]"), "more than 2^63 bytes"},
      {one(f32, "[4294967296,4294967296]", "[0,0]"), "more than 2^63 bytes"},
      {one(f32, "[4]", "[10,5]"), "end before they begin"},
      {one(f32, "[1]", "[-1,3]"), "found -1"},
      {one(f32, "[1]", "[0,4e0]"), "found 4e0"},
      {one(f32, "[1]", "[0,\"4\"]"), "found \"4\""},
      {one(f32, "[1.0]", "[0,4]"), "found 1.0"},
      {one(f32, "[-1]", "[0,4]"), "shape must hold integers"},
      {one(f32, "[null]", "[0,4]"), "found null"},
      {one(f32, "[18446744073709551615]", "[0,4]"), "found 18446744073709551615"},
      {one(f32, "[99999999999999999999]", "[0,4]"), "found 99999999999999999999"},
      {one(f32, "[[1]]", "[0,4]"), "found an array"},
      {one(f32, "{}", "[0,4]"), "shape must be an array"},
      {one(f32, "1", "[0,4]"), "shape must be an array"},
      {one(f32, "[1]", "[0]"), "found 1 numbers"},
      {one(f32, "[1]", "[0,4,4]"), "found 3 numbers"},
      {one(f32, "[2]", "[0,4]"), "needs 8 bytes"},
      {one(f32, "[1]", "[0,9223372036854775807]"), "needs 4 bytes"},
      {one(f32, "[1]", "[9223372036854775803,9223372036854775807]"), "the file is cut"},
      {one("\"F7\"", "[1]", "[0,4]"), "unknown dtype \"F7\""},
      {one("4", "[1]", "[0,4]"), "dtype must be a string"},
      {one("null", "[1]", "[0,4]"), "dtype must be a string"},
      {R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", "has no shape"},
      {R"({"t":{"shape":[1],"data_offsets":[0,4]}})", "has no dtype"},
      {R"({"t":{"dtype":"F32","shape":[1]}})", "has no data_offsets"},
      {R"({"t":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", "\"shape\" stands twice"},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "unknown key \"x\""},
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
       "\"t\" stands twice"},
      {R"({"t":1})", "must be an object"},
      {R"({"t":[]})", "must be an object"},
      {R"({"__metadata__":{"a":1}})", "must be a string"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", "twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "twice"},
      {R"({"__metadata__":"x"})", "must be an object"},
      {"[]", "must be a JSON object"},
      {"\"x\"", "must be a JSON object"},
      {"{", "not valid JSON"},
      {"{}}", "not valid JSON"},
      {"{\"\xff\":1}", "not valid JSON"},
      {std::string("{}\0", 3), "not valid JSON"},
      {R"({"a\nb":1})", "a\\nb"},
      {"", "must be a JSON object"},
  };
  for (const Case& c : cases) {
    const std::string text = refusal(c.header, "abcd");
    EXPECT_TRUE(has(text, c.want)) << c.header << "\n" << text;
  }
  const std::string deep(200000, '[');
  EXPECT_TRUE(has(refusal(R"({"t":)" + deep, ""), "must be an object"));
}

// W11: a 4-byte float behind a 2-byte tensor.
TEST_F(SafetensorsTest, UnalignedTensorsAreRead) {
  std::string data("\x80\x3F", 2);
  const float b = 0.1F;
  data.append(reinterpret_cast<const char*>(&b), 4);
  const std::string path = put(R"({"A":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
                               R"("B":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                               data);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  float got = 0;
  ASSERT_TRUE(file.value().read_f32("B", &got).ok());
  EXPECT_EQ(testing::bits_of(got), testing::bits_of(b));
  ASSERT_TRUE(file.value().read_f32("A", &got).ok());
  EXPECT_EQ(got, 1.0F);
}

// A file written by the format's own library (safetensors 0.6, numpy).
TEST_F(SafetensorsTest, ReadsWhatTheReferenceWrites) {
  const auto file = SafetensorsFile::open(testing::test_data("checkpoint/reference_writer.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::string listing;
  for (const TensorInfo& t : file.value().tensors())
    listing += t.name + " " + type_text(t.dtype, t.shape) + "; ";
  EXPECT_EQ(listing, "a I64 []; b.weight F32 [2,3]; c F16 [3]; e U8 [0,4]; flag BOOL [2]; ");
  EXPECT_EQ(file.value().metadata().at("who"), "x");
  int64_t a = 0;
  ASSERT_TRUE(file.value().read("a", &a).ok());
  EXPECT_EQ(a, 7);
  float b[6];
  ASSERT_TRUE(file.value().read_f32("b.weight", b).ok());
  const uint32_t want[6] = {0x3FC00000, 0x80000000, 0x7FC00000, 0x7F800000, 1, 0x40400000};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(b[i]), want[i]);
  float c[3];
  ASSERT_TRUE(file.value().read_f32("c", c).ok());
  EXPECT_EQ(c[0], 65504.0F);
  EXPECT_EQ(c[1], 0x1p-24F);
  EXPECT_EQ(c[2], -std::numeric_limits<float>::infinity());
}

TEST_F(SafetensorsTest, EmptyTensorsAndScalars) {
  const std::string path = put(R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
                               R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                               R"("z":{"dtype":"F32","shape":[5,0],"data_offsets":[0,0]}})",
                               "abcd");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  float x = 0;
  EXPECT_TRUE(file.value().read_f32("e", &x).ok());
  EXPECT_TRUE(file.value().read_f32("e", 0, 0, &x).ok());
  EXPECT_TRUE(file.value().read_f32("z", 1, 3, &x).ok());
  EXPECT_TRUE(file.value().read_f32("s", 0, 1, &x).ok());
}

TEST_F(SafetensorsTest, FileThatShrinksIsAnError) {
  const std::string path = put(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "abcdefgh");
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  char got[8];
  const Status status = file.value().read("a", got);
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(has(status.message(), "ended at byte"));
}

TEST_F(SafetensorsTest, FoldersAndMissingFiles) {
  EXPECT_TRUE(has(refusal(folder_), "not a regular file"));
  EXPECT_TRUE(has(refusal(folder_ + "/none"), "cannot open"));
}

}  // namespace
}  // namespace lockstep::checkpoint
