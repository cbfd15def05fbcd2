// SPDX-License-Identifier: Apache-2.0
// Checkpoint folders: run/iter_0000019/ with weights, optimizer.safetensors, state.json and SHA256SUMS.
// A folder under its final name is complete: it is written aside, synced and renamed (docs/formats.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "core/status.h"

namespace lockstep::checkpoint {

inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kSumsFile = "SHA256SUMS";
inline constexpr const char* kLatestFile = "latest_checkpointed_iteration.txt";

std::string checkpoint_name(int64_t iteration);  // "iter_0000019"
std::string checkpoint_path(const std::string& run_dir, int64_t iteration);
// None when `name` is not exactly what checkpoint_name gives.
std::optional<int64_t> checkpoint_iteration(std::string_view name);

// One folder being written. Nothing is to be seen under the final name before commit(); a writer that goes
// away without commit removes what it wrote, so a full disk gets its space back.
class CheckpointWriter {
 public:
  // run_dir/iter_NNNNNNN. A temporary folder left by a killed process is removed first.
  static Result<CheckpointWriter> begin(const std::string& run_dir, int64_t iteration);
  // A folder of any name, without the pointer file: convert, init. kInvalid when it is there and not empty.
  static Result<CheckpointWriter> begin_folder(const std::string& folder);

  // The writer stays valid until commit; close() it before the next call.
  Result<SafetensorsWriter*> add_safetensors(const std::string& name, std::vector<TensorSpec> specs);
  Status add_file(const std::string& name, std::string_view bytes);
  // side_files() of `folder`, byte for byte.
  Status copy_side_files(const std::string& folder);
  // SHA256SUMS, sync, rename, pointer file. When the folder is already there (a run that was set back): equal
  // contents are kept, damaged ones replaced; whole and different ones stop the run, because a step that is
  // taken again must give the same bits.
  Status commit();

  // Where the files lie until commit.
  const std::string& temporary_path() const { return *temporary_; }

 private:
  struct RemoveFolder {
    void operator()(const std::string* path) const;  // the folder and the string
  };

  CheckpointWriter() = default;
  Status prepare();
  Status settle_existing(const std::string& sums, bool* keep);

  std::string final_;
  std::unique_ptr<const std::string, RemoveFolder> temporary_;  // null after commit
  std::string run_dir_;                                         // "": no pointer file
  int64_t iteration_ = -1;
  std::vector<std::pair<std::string, std::unique_ptr<SafetensorsWriter>>> tensors_;
  std::vector<std::pair<std::string, std::string>> sums_;  // name, hash
};

// A complete checkpoint, opened.
struct Checkpoint {
  std::string folder;
  HfWeights weights;
  SafetensorsFile optimizer;
  std::string state;  // state.json
};
Result<Checkpoint> open_checkpoint(const std::string& folder);

// Iterations that have a folder in run_dir, ascending by number. Temporary and unknown names are passed over;
// a run_dir that does not exist has none.
Result<std::vector<int64_t>> list_checkpoints(const std::string& run_dir);

enum class CheckDepth {
  kFiles,   // SHA256SUMS and every file it lists are there, safetensors files have the size their headers say
  kHashes,  // and every hash agrees
};
// kInvalid names the first file that is missing or does not agree. Files that are not listed do not matter.
Status verify_sha256sums(const std::string& folder, CheckDepth depth = CheckDepth::kHashes);
// Name and hash of every line, as they stand.
Result<std::vector<std::pair<std::string, std::string>>> read_sha256sums(const std::string& folder);

// The newest one that passes verify_sha256sums; for each newer one that does not, a warning says why.
Result<std::optional<int64_t>> newest_complete_checkpoint(const std::string& run_dir,
                                                          CheckDepth depth = CheckDepth::kHashes);

// The pointer file, written aside and renamed: the number alone, as Megatron writes it. commit() does it; a
// start does it again, in case the process before was killed between the two renames.
Status write_latest(const std::string& run_dir, int64_t iteration);

// What killed processes left in run_dir: iter_NNNNNNN.tmp and the pointer file's temporary.
Status remove_stale_temporaries(const std::string& run_dir);

// Removes all but the newest `keep` checkpoints of those up to `newest`; -1 keeps all, 0 is kInvalid. Unknown
// folders stay, and so do checkpoints after `newest`: damaged ones that the run will write again.
Status retain_checkpoints(const std::string& run_dir, int64_t keep, int64_t newest = INT64_MAX);

// kInvalid, with needed and free bytes of the volume that holds `path`, when they do not fit.
Status check_space(const std::string& path, int64_t needed_bytes);

}  // namespace lockstep::checkpoint
