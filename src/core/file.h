// SPDX-License-Identifier: Apache-2.0
// Files with Status. Reading errors are kInvalid, writing errors kStopped; both name the path and the reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lockstep {

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
Result<int64_t> file_size_bytes(const std::string& path);
Result<std::string> read_file(const std::string& path);
// Names (not paths) of a folder's entries in byte order, without . and ..
Result<std::vector<std::string>> list_directory(const std::string& path);
Status make_directories(const std::string& path);
// Whether `path` is a folder that can be written or could be made one: kInvalid, naming what is in the way,
// if not. Nothing is created.
Status check_output_folder(const std::string& path);
Status remove_all(const std::string& path);

// Writes `path` whole: to path + ".tmp", fsync, rename, fsync of the folder. After an error the old file is
// intact.
Status write_file_atomic(const std::string& path, std::string_view contents);
// fsync of a folder, so that a rename in it is on disk.
Status sync_directory(const std::string& path);
// rename(2), then sync of the parent of `to`.
Status rename_path(const std::string& from, const std::string& to);
// Bytes free to this user on the volume that holds `path` (or its nearest existing parent).
Result<int64_t> free_space_bytes(const std::string& path);

std::string join_path(const std::string& folder, const std::string& name);
std::string parent_path(const std::string& path);
std::string base_name(const std::string& path);

// A file written in order. Every error names the path and the bytes written so far. The destructor closes
// without reporting: call close() for the verdict.
class FileWriter {
 public:
  FileWriter() = default;
  ~FileWriter();
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Truncates unless `append`.
  static Result<FileWriter> open(const std::string& path, bool append = false);
  Status write(const void* bytes, size_t size);
  Status write(std::string_view text) { return write(text.data(), text.size()); }
  Status sync();
  Status close();  // with fsync
  int64_t bytes_written() const { return bytes_written_; }

 private:
  int fd_ = -1;
  std::string path_;
  int64_t bytes_written_ = 0;
};

}  // namespace lockstep
