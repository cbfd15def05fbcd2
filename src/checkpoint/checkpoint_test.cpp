// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

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

// A checkpoint whose contents are a function of `seed`: about 6 KB.
Status save(const std::string& run_dir, int64_t iteration, uint64_t seed) {
  testing::TestRandom random(seed);
  const std::vector<float> weights = random.values(512);
  const std::vector<float> moments = random.values(1024);
  LOCKSTEP_ASSIGN_OR_RETURN(CheckpointWriter writer, CheckpointWriter::begin(run_dir, iteration));
  LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsWriter * model,
                            writer.add_safetensors(kModelFile, {{"w", DType::kF32, {8, 64}}}));
  LOCKSTEP_RETURN_IF_ERROR(model->append("w", weights.data(), 2048));
  LOCKSTEP_RETURN_IF_ERROR(model->close());
  LOCKSTEP_ASSIGN_OR_RETURN(SafetensorsWriter * optimizer,
                            writer.add_safetensors(kOptimizerFile, {{"m", DType::kF32, {1024}}}));
  LOCKSTEP_RETURN_IF_ERROR(optimizer->append("m", moments.data(), 4096));
  LOCKSTEP_RETURN_IF_ERROR(optimizer->close());
  LOCKSTEP_RETURN_IF_ERROR(writer.add_file(kConfigFile, "{}\n"));
  LOCKSTEP_RETURN_IF_ERROR(writer.add_file(kStateFile, R"({"seed":)" + std::to_string(seed) + "}\n"));
  return writer.commit();
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ = fast_folder() + "lockstep_run_" + std::to_string(::getpid());
    ASSERT_TRUE(make_directories(run_).ok());
  }
  void TearDown() override { EXPECT_TRUE(remove_all(run_).ok()); }

  std::string latest() { return read_file(run_ + "/" + kLatestFile).value(); }
  int64_t newest(CheckDepth depth = CheckDepth::kHashes) {
    const auto found = newest_complete_checkpoint(run_, depth);
    EXPECT_TRUE(found.ok());
    return found.value().value_or(-1);
  }
  void flip_byte(const std::string& file, int64_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    const char c = static_cast<char>(stream.get() ^ 1);
    stream.seekp(offset);
    stream.put(c);
  }

  std::string run_;
};

TEST_F(CheckpointTest, SavesAndLoads) {
  ASSERT_TRUE(save(run_, 19, 7).ok());
  const std::string folder = run_ + "/iter_0000019";
  EXPECT_EQ(list_directory(folder).value(),
            (std::vector<std::string>{"SHA256SUMS", "config.json", "model.safetensors",
                                      "optimizer.safetensors", "state.json"}));
  EXPECT_EQ(latest(), "19");
  EXPECT_EQ(list_directory(run_).value(),
            (std::vector<std::string>{"iter_0000019", "latest_checkpointed_iteration.txt"}));
  EXPECT_TRUE(verify_sha256sums(folder).ok());
  EXPECT_EQ(newest(), 19);
  const auto checkpoint = open_checkpoint(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  testing::TestRandom random(7);
  const std::vector<float> want = random.values(512);
  std::vector<float> got(512);
  ASSERT_TRUE(checkpoint.value().weights.read_f32("w", got.data()).ok());
  EXPECT_TRUE(testing::same_bits(want, got));
  EXPECT_EQ(checkpoint.value().state, "{\"seed\":7}\n");
}

TEST_F(CheckpointTest, SumsAreReadBySha256sum) {
  ASSERT_TRUE(save(run_, 0, 1).ok());
  if (std::system("command -v sha256sum >/dev/null 2>&1") != 0) GTEST_SKIP() << "no sha256sum";
  const std::string command = "cd " + run_ + "/iter_0000000 && sha256sum --check --strict --quiet SHA256SUMS";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(CheckpointTest, SameStateSameBytes) {
  ASSERT_TRUE(save(run_ + "/a", 3, 5).ok());
  ASSERT_TRUE(save(run_ + "/b", 3, 5).ok());
  const std::vector<std::string> names = list_directory(run_ + "/a/iter_0000003").value();
  ASSERT_EQ(names.size(), 5U);
  for (const std::string& name : names) {
    EXPECT_EQ(read_file(run_ + "/a/iter_0000003/" + name).value(),
              read_file(run_ + "/b/iter_0000003/" + name).value())
        << name;
  }
}

// R15: newest by number, not by text; temporaries and unknown folders are passed over.
TEST_F(CheckpointTest, NewestIsByNumber) {
  for (const int64_t iteration : {9, 10, 9000, 10000, 9999999, 10000000}) {
    ASSERT_TRUE(save(run_, iteration, 1).ok());
  }
  for (const char* name :
       {"/iter_10000001.tmp", "/notes", "/iter_99999999x", "/iter_12", "/iter_00000012", "/iter_"}) {
    ASSERT_TRUE(make_directories(run_ + name).ok());
  }
  ASSERT_TRUE(write_file_atomic(run_ + "/iter_0000077", "a file").ok());
  EXPECT_EQ(list_checkpoints(run_).value(), (std::vector<int64_t>{9, 10, 9000, 10000, 9999999, 10000000}));
  EXPECT_EQ(newest(), 10000000);
  EXPECT_TRUE(list_checkpoints(run_ + "/none").value().empty());
}

TEST_F(CheckpointTest, RetainKeepsTheNewest) {
  for (const int64_t iteration : {9, 10, 9000, 10000}) ASSERT_TRUE(save(run_, iteration, 1).ok());
  ASSERT_TRUE(make_directories(run_ + "/notes").ok());
  ASSERT_TRUE(retain_checkpoints(run_, -1).ok());
  EXPECT_EQ(list_checkpoints(run_).value().size(), 4U);
  const Status zero = retain_checkpoints(run_, 0);
  EXPECT_EQ(zero.code(), StatusCode::kInvalid);
  EXPECT_EQ(list_checkpoints(run_).value().size(), 4U);
  ASSERT_TRUE(retain_checkpoints(run_, 2).ok());
  EXPECT_EQ(list_checkpoints(run_).value(), (std::vector<int64_t>{9000, 10000}));
  ASSERT_TRUE(retain_checkpoints(run_, 1).ok());
  EXPECT_EQ(list_checkpoints(run_).value(), (std::vector<int64_t>{10000}));
  ASSERT_TRUE(retain_checkpoints(run_, 1).ok());
  EXPECT_EQ(list_checkpoints(run_).value(), (std::vector<int64_t>{10000}));
  EXPECT_TRUE(is_directory(run_ + "/notes"));
}

// A run set back to 10 saves 11, with damaged ones behind it: those count for nothing.
TEST_F(CheckpointTest, RetainCountsUpToTheNewestOfTheRun) {
  for (const int64_t iteration : {9, 10, 11, 20, 21}) ASSERT_TRUE(save(run_, iteration, 1).ok());
  ASSERT_TRUE(retain_checkpoints(run_, 2, 11).ok());
  EXPECT_EQ(list_checkpoints(run_).value(), (std::vector<int64_t>{10, 11, 20, 21}));
}

TEST_F(CheckpointTest, DamagedOnesArePassedOver) {
  ASSERT_TRUE(save(run_, 1, 1).ok());
  ASSERT_TRUE(save(run_, 2, 2).ok());
  ASSERT_TRUE(save(run_, 3, 3).ok());
  flip_byte(run_ + "/iter_0000003/model.safetensors", 500);
  EXPECT_EQ(newest(CheckDepth::kFiles), 3);
  EXPECT_EQ(newest(), 2);
  const Status damaged = verify_sha256sums(run_ + "/iter_0000003");
  EXPECT_TRUE(has(damaged.message(), "iter_0000003/model.safetensors")) << damaged.message();
  std::filesystem::resize_file(run_ + "/iter_0000003/optimizer.safetensors", 4000);
  EXPECT_EQ(newest(CheckDepth::kFiles), 2);
  ASSERT_TRUE(remove_all(run_ + "/iter_0000002/state.json").ok());
  EXPECT_EQ(newest(CheckDepth::kFiles), 1);
  ASSERT_TRUE(remove_all(run_ + "/iter_0000001/SHA256SUMS").ok());
  EXPECT_EQ(newest(CheckDepth::kFiles), -1);
}

TEST_F(CheckpointTest, MalformedSums) {
  ASSERT_TRUE(save(run_, 1, 1).ok());
  const std::string folder = run_ + "/iter_0000001";
  const std::string hash(64, 'a');
  for (const std::string& text : {std::string(), hash, hash + "  x", hash + " x\n", hash + "  ../x\n",
                                  std::string(64, 'g') + "  x\n", std::string("x\n")}) {
    ASSERT_TRUE(write_file_atomic(folder + "/" + kSumsFile, text).ok());
    const Status status = verify_sha256sums(folder);
    EXPECT_EQ(status.code(), StatusCode::kInvalid) << text;
    EXPECT_TRUE(has(status.message(), kSumsFile)) << status.message();
  }
}

TEST_F(CheckpointTest, TemporariesAreRemovedOthersStay) {
  for (const char* name :
       {"/iter_0000005.tmp", "/iter_0000006.replaced.tmp", "/notes.tmp", "/notes", "/iter_5.tmp"}) {
    ASSERT_TRUE(make_directories(run_ + name).ok());
  }
  ASSERT_TRUE(write_file_atomic(run_ + "/" + kLatestFile + ".tmp", "1").ok());
  ASSERT_TRUE(remove_stale_temporaries(run_).ok());
  EXPECT_EQ(list_directory(run_).value(), (std::vector<std::string>{"iter_5.tmp", "notes", "notes.tmp"}));
  EXPECT_TRUE(remove_stale_temporaries(run_ + "/none").ok());
}

TEST_F(CheckpointTest, WriterWithoutCommitLeavesNothing) {
  {
    auto writer = CheckpointWriter::begin(run_, 4);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer.value().add_file("x", "y").ok());
    EXPECT_TRUE(path_exists(writer.value().temporary_path() + "/x"));
  }
  EXPECT_TRUE(list_directory(run_).value().empty());
}

TEST_F(CheckpointTest, SavedAgain) {
  ASSERT_TRUE(save(run_, 4, 1).ok());
  ASSERT_TRUE(save(run_, 5, 1).ok());
  ASSERT_TRUE(save(run_, 4, 1).ok());  // equal: kept
  EXPECT_EQ(latest(), "4");
  const Status other = save(run_, 4, 2);
  EXPECT_EQ(other.code(), StatusCode::kStopped);
  EXPECT_TRUE(has(other.message(), "iter_0000004") && has(other.message(), "model.safetensors"))
      << other.message();
  EXPECT_TRUE(verify_sha256sums(run_ + "/iter_0000004").ok());
  flip_byte(run_ + "/iter_0000004/model.safetensors", 300);
  ASSERT_TRUE(save(run_, 4, 2).ok());  // damaged: replaced
  EXPECT_TRUE(verify_sha256sums(run_ + "/iter_0000004").ok());
  EXPECT_EQ(list_directory(run_).value().size(), 3U);
}

TEST_F(CheckpointTest, FolderOfAnyName) {
  const std::string out = run_ + "/out/model/";
  ASSERT_TRUE(make_directories(run_ + "/from").ok());
  ASSERT_TRUE(write_file_atomic(run_ + "/from/tokenizer.json", "{\"a\": 1}\r\n").ok());
  ASSERT_TRUE(write_file_atomic(run_ + "/from/other.txt", "").ok());
  ASSERT_TRUE(make_directories(out).ok());  // empty: allowed
  auto writer = CheckpointWriter::begin_folder(out);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer.value().copy_side_files(run_ + "/from").ok());
  ASSERT_TRUE(writer.value().commit().ok());
  EXPECT_EQ(list_directory(out).value(), (std::vector<std::string>{"SHA256SUMS", "tokenizer.json"}));
  EXPECT_EQ(read_file(out + "tokenizer.json").value(), "{\"a\": 1}\r\n");
  EXPECT_EQ(list_directory(run_ + "/out").value(), (std::vector<std::string>{"model"}));
  const auto again = CheckpointWriter::begin_folder(out);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), StatusCode::kInvalid);
}

// R14.
TEST_F(CheckpointTest, SpaceIsCheckedBefore) {
  EXPECT_TRUE(check_space(run_ + "/not/there/yet", 1).ok());
  const Status status = check_space(run_, int64_t{1} << 60);
  EXPECT_EQ(status.code(), StatusCode::kInvalid);
  EXPECT_TRUE(has(status.message(), run_) && has(status.message(), std::to_string(int64_t{1} << 60)));
}

// R13 with a limit on the size of a file in the place of a full disk: fails at every byte of every file.
TEST_F(CheckpointTest, FailedWritesLeaveThePreviousCheckpoint) {
  ASSERT_TRUE(save(run_, 1, 1).ok());
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  int failures = 0;
  bool done = false;
  for (rlim_t bytes = 0; !done; bytes += bytes < 4 ? 1 : 97) {
    rlimit limit = unlimited;
    limit.rlim_cur = bytes;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status status = save(run_, 2, 2);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    done = status.ok();
    if (done) break;
    ++failures;
    ASSERT_EQ(status.code(), StatusCode::kStopped);
    ASSERT_TRUE(has(status.message(), run_) && has(status.message(), "bytes")) << status.message();
    ASSERT_EQ(newest(), 1);
    ASSERT_EQ(latest(), "1");
    ASSERT_FALSE(path_exists(run_ + "/iter_0000002.tmp"));
  }
  std::signal(SIGXFSZ, before);
  EXPECT_GT(failures, 30);
  EXPECT_EQ(newest(), 2);
  EXPECT_EQ(latest(), "2");
}

// R13 on a real full volume, where mounting one is allowed. In a child: the mount is seen by it alone.
TEST_F(CheckpointTest, FullVolume) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", run_.c_str(), "tmpfs", 0, "size=36k") != 0) {
      ::_exit(77);
    }
    // One checkpoint of 5 files takes 8 pages, two do not fit.
    if (!save(run_, 1, 1).ok()) ::_exit(1);
    const Status full = save(run_, 2, 2);
    if (full.code() != StatusCode::kStopped || !has(full.message(), "No space left")) ::_exit(2);
    if (newest() != 1 || latest() != "1" || !open_checkpoint(run_ + "/iter_0000001").ok()) ::_exit(3);
    if (path_exists(run_ + "/iter_0000002.tmp")) ::_exit(4);
    if (::mount("tmpfs", run_.c_str(), "tmpfs", MS_REMOUNT, "size=1m") != 0) ::_exit(5);
    if (!save(run_, 2, 2).ok() || newest() != 2) ::_exit(6);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// R11: killed at any moment of a save; a complete checkpoint is always found, and the run goes on.
TEST_F(CheckpointTest, KilledWhileSaving) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(save(run_, 0, 0).ok());
  const auto one_save =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  testing::TestRandom random(11);
  int64_t reached = 0;
  for (int round = 0; round < 15; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int64_t i = reached + 1;; ++i) {
        if (!save(run_, i, static_cast<uint64_t>(i)).ok()) ::_exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(random.below(3 * one_save.count() + 1000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::vector<int64_t> all = list_checkpoints(run_).value();
    for (const int64_t i : all) ASSERT_TRUE(verify_sha256sums(checkpoint_path(run_, i)).ok());
    ASSERT_GE(all.back(), reached);
    reached = all.back();
    ASSERT_TRUE(remove_stale_temporaries(run_).ok());
    ASSERT_EQ(list_directory(run_).value().size(), all.size() + 1);
    ASSERT_TRUE(retain_checkpoints(run_, 2).ok());
  }
  EXPECT_GT(reached, 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
