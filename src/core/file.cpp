// SPDX-License-Identifier: Apache-2.0
#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

bool path_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<int64_t> file_size_bytes(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return invalid("{}: {}", path, reason());
  return static_cast<int64_t>(info.st_size);
}

Result<std::string> read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return invalid("{}: cannot open: {}", path, reason());
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    ::close(fd);
    return invalid("{}: is not a regular file", path);
  }
  std::string out;
  out.reserve(static_cast<size_t>(std::max<off_t>(info.st_size, 0)));
  char piece[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string why = reason();
      ::close(fd);
      return invalid("{}: read error: {}", path, why);
    }
    if (n == 0) break;
    out.append(piece, static_cast<size_t>(n));
  }
  ::close(fd);
  return out;
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator it(path, error);
  if (error) return invalid("{}: cannot list: {}", path, error.message());
  for (; it != fs::directory_iterator(); it.increment(error)) {
    if (error) return invalid("{}: cannot list: {}", path, error.message());
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return stopped("{}: cannot create folder: {}", path, error.message());
  return ok_status();
}

Status check_output_folder(const std::string& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  while (!at.empty() && at.has_relative_path() && !fs::exists(fs::symlink_status(at, error)))
    at = at.parent_path();
  if (!fs::is_directory(at, error))
    return invalid("{}: {} is not a folder; give another one", path, at.string());
  if (access(at.c_str(), W_OK | X_OK) != 0)
    return invalid("{}: no permission to write in {}; give another folder", path, at.string());
  return ok_status();
}

Status remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return stopped("{}: cannot remove: {}", path, error.message());
  return ok_status();
}

std::string join_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::string parent_path(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string base_name(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return fs::path(trimmed).filename().string();
}

Status sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return stopped("{}: cannot open folder: {}", path, reason());
  const bool failed = ::fsync(fd) != 0;
  const std::string why = failed ? reason() : "";
  ::close(fd);
  if (failed) return stopped("{}: cannot sync folder: {}", path, why);
  return ok_status();
}

Status rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return stopped("{}: cannot rename to {}: {}", from, to, reason());
  return sync_directory(parent_path(to));
}

Status write_file_atomic(const std::string& path, std::string_view contents) {
  const std::string temporary = path + ".tmp";
  LOCKSTEP_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::open(temporary));
  Status status = writer.write(contents);
  if (status.ok()) status = writer.close();
  if (status.ok()) status = rename_path(temporary, path);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Result<int64_t> free_space_bytes(const std::string& path) {
  std::string place = path;
  while (!path_exists(place) && place != "." && place != "/") place = parent_path(place);
  struct statvfs info {};
  if (::statvfs(place.c_str(), &info) != 0) return invalid("{}: cannot read free space: {}", place, reason());
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      bytes_written_(other.bytes_written_) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    bytes_written_ = other.bytes_written_;
  }
  return *this;
}

Result<FileWriter> FileWriter::open(const std::string& path, bool append) {
  FileWriter writer;
  writer.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0644);
  if (writer.fd_ < 0) return stopped("{}: cannot open for writing: {}", path, reason());
  writer.path_ = path;
  return writer;
}

Status FileWriter::write(const void* bytes, size_t size) {
  const char* p = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(fd_, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return stopped(
          "{}: write failed after {} bytes: {}; free space and start again (complete checkpoints are intact)",
          path_, bytes_written_, reason());
    }
    p += n;
    size -= static_cast<size_t>(n);
    bytes_written_ += n;
  }
  return ok_status();
}

Status FileWriter::sync() {
  if (::fsync(fd_) != 0)
    return stopped("{}: sync failed after {} bytes: {}", path_, bytes_written_, reason());
  return ok_status();
}

Status FileWriter::close() {
  Status status = sync();
  if (::close(std::exchange(fd_, -1)) != 0 && status.ok()) {
    status = stopped("{}: close failed after {} bytes: {}", path_, bytes_written_, reason());
  }
  return status;
}

}  // namespace lockstep
