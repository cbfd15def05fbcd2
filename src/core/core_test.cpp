// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/file.h"
#include "core/machine_memory.h"
#include "core/nesting.h"
#include "core/sha256.h"
#include "core/suggest.h"

namespace lockstep {
namespace {

TEST(Nesting, CountsOutsideStrings) {
  EXPECT_FALSE(nests_deeper("[[1],[2],{\"a\":3}]", 2));
  EXPECT_TRUE(nests_deeper("[[1],[[2]]]", 2));
  EXPECT_FALSE(nests_deeper("[\"[[[\\\"{{{\"]", 1));
  EXPECT_TRUE(nests_deeper("[\"a\\\\\",[", 1));
  EXPECT_FALSE(nests_deeper("\"[[", 1));
}

TEST(File, AFailedAtomicWriteLeavesNothing) {
  const std::string folder = ::testing::TempDir() + "lockstep_atomic_" + std::to_string(getpid());
  ASSERT_TRUE(make_directories(folder + "/is_a_folder/x").ok());
  EXPECT_FALSE(write_file_atomic(folder + "/is_a_folder", "text").ok());
  EXPECT_FALSE(path_exists(folder + "/is_a_folder.tmp"));
  EXPECT_TRUE(remove_all(folder).ok());
}

TEST(Sha256, MatchesFips180Vectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Bytes, HexRoundTripAndRejectsBadDigits) {
  EXPECT_EQ(to_hex(uint64_t{0x0123456789ABCDEF}), "0123456789abcdef");
  EXPECT_EQ(from_hex("00ff10").value(), std::string("\x00\xff\x10", 3));
  EXPECT_FALSE(from_hex("0").has_value());
  EXPECT_FALSE(from_hex("0g").has_value());
}

TEST(DType, NamesRoundTrip) {
  for (const char* name : {"F32", "BF16", "F16", "I64", "BOOL"})
    EXPECT_EQ(dtype_name(*dtype_from_name(name)), name);
  EXPECT_FALSE(dtype_from_name("F7").has_value());
}

TEST(Suggest, NearestNameOrNothing) {
  EXPECT_EQ(nearest_name("--learning-rat", {"--lr", "--learning-rate", "--load"}), "--learning-rate");
  EXPECT_EQ(nearest_name("zzzzzzzz", {"--lr", "--load"}), "");
}

TEST(File, AtomicWriteReplacesAndErrorsNameThePath) {
  const std::string folder = ::testing::TempDir() + "lockstep_core_test";
  ASSERT_TRUE(remove_all(folder).ok());
  ASSERT_TRUE(make_directories(folder).ok());
  const std::string path = join_path(folder, "a");
  ASSERT_TRUE(write_file_atomic(path, "one").ok());
  ASSERT_TRUE(write_file_atomic(path, "two").ok());
  EXPECT_EQ(read_file(path).value(), "two");
  EXPECT_EQ(list_directory(folder).value(), std::vector<std::string>{"a"});
  const Status missing = read_file(join_path(folder, "b")).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalid);
  EXPECT_NE(missing.message().find("/b"), std::string::npos);
  EXPECT_EQ(write_file_atomic(join_path(folder, "no/such"), "x").code(), StatusCode::kStopped);
}

TEST(MachineMemory, IsTheLeastOfMachineAndControlGroup) {
  const std::string meminfo =
      "MemTotal:       24000000 kB\nMemFree: 5 kB\nSwapTotal:       1000 kB\nSwapFree: 0 kB\n";
  constexpr int64_t kKib = 1024;
  EXPECT_EQ(machine_memory_of(meminfo, "", ""), 24001000 * kKib);
  EXPECT_EQ(machine_memory_of(meminfo, "max\n", "max\n"), 24001000 * kKib);
  EXPECT_EQ(machine_memory_of(meminfo, "1073741824\n", "0\n"), int64_t{1} << 30);
  EXPECT_EQ(machine_memory_of("", "", ""), 0);
  EXPECT_GT(machine_memory(), int64_t{1} << 26);
}

TEST(File, AnOutputFolderMayBeMissingButNotBehindAFile) {
  const std::string folder = ::testing::TempDir() + "lockstep_core_output";
  ASSERT_TRUE(remove_all(folder).ok());
  ASSERT_TRUE(make_directories(folder).ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder, "file"), "x").ok());
  EXPECT_TRUE(check_output_folder(folder).ok());
  EXPECT_TRUE(check_output_folder(folder + "/").ok());
  EXPECT_TRUE(check_output_folder(join_path(folder, "not/there/yet")).ok());
  EXPECT_TRUE(check_output_folder("not-there-either").ok());
  EXPECT_FALSE(path_exists(join_path(folder, "not")));
  for (const char* name : {"file", "file/run", "file/a/b"}) {
    const Status status = check_output_folder(join_path(folder, name));
    EXPECT_EQ(status.code(), StatusCode::kInvalid) << name;
    EXPECT_NE(status.message().find(join_path(folder, "file") + " is not a folder"), std::string::npos)
        << status.message();
  }
}

}  // namespace
}  // namespace lockstep
